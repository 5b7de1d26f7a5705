/**
 * Messages about configuration without what variables of the environment hold: a value may be a secret that stands in the
 * wrong place, and an expression's error quotes only a part of it.
 */
export interface VariableValue {
  readonly name: string;
  readonly value: string;
}

/** Shorter ones are words of messages themselves. */
const MIN_HIDDEN_CHARS = 3;

/** With the variable's name instead. */
export function withoutValues(message: string, variables: readonly VariableValue[]): string {
  let hidden = message;
  for (const { name, value } of variables) {
    if (value.length < MIN_HIDDEN_CHARS) continue;
    hidden = hidden
      .replaceAll(value, () => `\${${name}}`)
      .replace(/(["`'])([^"`']{3,})\1/g, (quoted, _mark, text: string) =>
        value.includes(text) ? `(a part of \${${name}})` : quoted,
      );
  }
  return hidden;
}
