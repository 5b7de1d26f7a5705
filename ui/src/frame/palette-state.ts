/**
 * Stores whether the command palette is open. A separate module lets shortcuts open the palette without importing it.
 */
import { signal } from "@preact/signals";

export const isPaletteOpen = signal(false);
