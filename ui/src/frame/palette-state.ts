/**
 * Whether the command palette is open; apart from it, so that keys can open it without loading it.
 */
import { signal } from "@preact/signals";

export const isPaletteOpen = signal(false);
