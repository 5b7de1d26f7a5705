/**
 * What the boot script and the application agree on: keys that were pressed before the application listened.
 */
export interface EarlyKeys {
  /** Ends the keeping; called once. */
  takeEarlyKeys?: () => readonly KeyboardEvent[];
}

/** Keys that browsers have a meaning for, too: the search in the page, and the address bar. */
export function isOurs(event: KeyboardEvent): boolean {
  return isPaletteKey(event) || (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey);
}

export function isPaletteKey(event: KeyboardEvent): boolean {
  return (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k";
}
