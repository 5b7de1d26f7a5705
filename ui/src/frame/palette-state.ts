/**
 * The open state of the command palette, in a separate module so that shortcuts can open the palette without loading
 * it.
 */
import { signal } from "@preact/signals";

export const isPaletteOpen = signal(false);
