/**
 * The tools that the playground has seen so far: for the palette.
 */
import { signal } from "@preact/signals";

export const knownTools = signal<readonly { readonly name: string; readonly endpoint: string }[]>([]);
