/**
 * Holds the tools that the playground has listed, for the palette.
 */
import { signal } from "@preact/signals";

export const knownTools = signal<readonly { readonly name: string; readonly endpoint: string }[]>([]);
