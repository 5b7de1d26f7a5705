/**
 * Defines what an evaluation reads its attributes from.
 */

/** True if the attributes are those of a traced request. A symbol, because expressions can read the other properties. */
export const IS_TRACED = Symbol("is traced");

/**
 * Has one property per top-level attribute, usually a lazy getter. The protected member makes the type nominal, because
 * every other object would compile as a source without attributes.
 */
export abstract class AttributeSource {
  declare protected readonly isAttributeSource: true;

  get [IS_TRACED](): boolean {
    return false;
  }
}

/** Accepts records only, so that an exchange or another interface type does not compile. */
export function plainAttributes(values: Readonly<Record<string, unknown>>): AttributeSource {
  return values as unknown as AttributeSource;
}
