/**
 * Creates patterns of the platform from parts that are known when the code is compiled. Only this file calls `RegExp`, so
 * text of a peer cannot become such a pattern.
 */

/** A type with an unknown part, such as `string`, is no constant. */
type Constant<S extends string> = Record<never, never> extends Record<S, 1> ? never : S;

export function constantRegExp<const S extends string>(source: Constant<S>, flags?: string): RegExp {
  return new RegExp(source, flags);
}
