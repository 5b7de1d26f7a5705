/**
 * Defines how the boot script passes recorded key presses to the application.
 */
export interface EarlyKeys {
  /** Returns the recorded key presses and stops recording. Called once. */
  takeEarlyKeys?: () => readonly KeyboardEvent[];
}

/** Browsers also use these keys, for example for find in page, so their default action must be prevented. */
export function isOurs(event: KeyboardEvent): boolean {
  return isPaletteKey(event) || (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey);
}

export function isPaletteKey(event: KeyboardEvent): boolean {
  return (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k";
}
