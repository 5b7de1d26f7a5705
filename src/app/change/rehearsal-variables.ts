/**
 * Variables of the environment in a rehearsal. Whoever reaches the admin interface chooses the new text, and must not read with
 * it what the gateway's environment holds: the report has the names of variables instead of their values, and a variable
 * that the running configuration does not name is not looked up.
 */
import type { SourceText } from "../../config/load/load.ts";
import { type Environment, markPlaceholders } from "../../config/text/env.ts";
import type { VariableValue } from "../../lib/text/hidden-values.ts";

/** Shorter values are words of the report itself. */
const MIN_HIDDEN_CHARS = 4;

/** With the names of variables that only `after` names: each stands for its own value, if it has one. */
export function variablesForRehearsal(
  before: readonly SourceText[],
  after: readonly SourceText[],
  environment: Environment,
): { readonly environment: Environment; readonly unnamed: readonly string[] } {
  const named = namesIn(before);
  const unnamed = [...namesIn(after)].filter((name) => !named.has(name) && environment[name] !== undefined);
  return { environment: { ...environment, ...Object.fromEntries(unnamed.map((name) => [name, name])) }, unnamed };
}

/** What these texts get from the environment. */
export function valuesIn(sources: readonly SourceText[], environment: Environment): readonly VariableValue[] {
  const values = [...namesIn(sources)].flatMap((name) => {
    const value = Object.hasOwn(environment, name) ? environment[name] : undefined;
    return value === undefined || value.length < MIN_HIDDEN_CHARS || value === name ? [] : [{ name, value }];
  });
  // A value may be a part of a longer one.
  return values.sort((one, other) => other.value.length - one.value.length);
}

/** Every text in it, as deep as it goes, without the values. */
export function withoutVariables<Value>(value: Value, variables: readonly VariableValue[]): Value {
  if (variables.length === 0) return value;
  const hiders = variables.flatMap(({ name, value: secret }) =>
    [...new Set([secret, JSON.stringify(secret).slice(1, -1)])].map((text) => hider(name, text)),
  );
  const hidden = (one: unknown): unknown => {
    if (typeof one === "string") return hiders.reduce((text, hide) => hide(text), one);
    if (Array.isArray(one)) return one.map(hidden);
    if (typeof one !== "object" || one === null) return one;
    return Object.fromEntries(Object.entries(one).map(([key, inner]) => [key, hidden(inner)]));
  };
  return hidden(value) as Value;
}

/** Header names are in lower case, and long texts are cut: the end of one may be the beginning of a value. */
function hider(name: string, secret: string): (text: string) => string {
  const shown = `\${${name}}`;
  const pattern = new RegExp(secret.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi");
  const lower = secret.toLowerCase();
  return (text) => {
    const replaced = text.replace(pattern, () => shown);
    const end = replaced.toLowerCase();
    for (let length = Math.min(lower.length - 1, end.length); length >= MIN_HIDDEN_CHARS; length--)
      if (end.endsWith(lower.slice(0, length))) return `${replaced.slice(0, -length)}${shown}`;
    return replaced;
  };
}

function namesIn(sources: readonly SourceText[]): Set<string> {
  const names = sources.flatMap(({ text }) =>
    markPlaceholders(text).placeholders.flatMap((one) => (one.kind === "variable" ? [one.name] : [])),
  );
  return new Set(names);
}
