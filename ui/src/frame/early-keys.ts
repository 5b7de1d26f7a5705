/**
 * The interface between the boot script and the application: keys pressed before the application handles them.
 */
export interface EarlyKeys {
  /** Returns the recorded keys and stops recording; called once. */
  takeEarlyKeys?: () => readonly KeyboardEvent[];
}

/** True for keys that browsers also use, such as find in page and the address bar. */
export function isOurs(event: KeyboardEvent): boolean {
  return isPaletteKey(event) || (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey);
}

export function isPaletteKey(event: KeyboardEvent): boolean {
  return (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k";
}
