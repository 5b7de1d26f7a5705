/**
 * Resolves the parts of a LiteLLM file that name values elsewhere: merge keys of YAML, `os.environ/NAME`,
 * `environment_variables`, and `credential_list`.
 */
import { asList, asObject, isObject, type Values } from "./conversion.ts";

export interface LitellmDocument {
  /** Without `null`, which LiteLLM reads as absent, and with `${NAME}` for `os.environ/NAME`. */
  readonly values: Values;
  /** Returns the value that the file sets for a variable of the environment, or undefined. */
  own(variable: string): string | undefined;
  /** Returns the value that the file sets, or `${NAME}`. */
  read(variable: string): string;
  /** The variables that the file sets and no setting used. */
  unused(): string[];
}

export function litellmDocument(source: unknown): LitellmDocument {
  const variables = asObject(withMergedParts(asObject(source).environment_variables));
  const used = new Set<string>();
  const own = (name: string): string | undefined => {
    if (!Object.hasOwn(variables, name)) return undefined;
    used.add(name);
    return converted(variables[name], (other) => `\${${other}}`);
  };
  const read = (name: string): string => own(name) ?? `\${${name}}`;
  const { environment_variables: _, ...others } = asObject(withMergedParts(source));
  const values = asObject(withVariables(others, read));
  return { values, own, read, unused: () => Object.keys(variables).filter((name) => !used.has(name)) };
}

function withMergedParts(source: unknown): unknown {
  if (Array.isArray(source)) return source.map(withMergedParts);
  if (!isObject(source)) return source;
  const entries = Object.entries(source).map(([name, value]) => [name, withMergedParts(value)] as const);
  // The first of several parts takes precedence.
  const merged = asList(entries.find(([name]) => name === "<<")?.[1])
    .reverse()
    .flatMap((part) => Object.entries(asObject(part)));
  const own = entries.filter(([name]) => name !== "<<");
  const whole = Object.entries(Object.fromEntries([...merged, ...own]));
  // A `null` replaces a merged value, and is absent then.
  return Object.fromEntries(whole.filter(([, value]) => value !== null && value !== undefined));
}

function withVariables(value: unknown, read: (name: string) => string): unknown {
  if (typeof value === "string") return converted(value, read);
  if (Array.isArray(value)) return value.map((item) => withVariables(item, read));
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, withVariables(item, read)]));
}

/** A literal `${` is escaped, because the gateway would read a variable. */
function converted(value: unknown, read: (name: string) => string): string {
  const [, name] = /^os\.environ\/(\w+)$/.exec(String(value)) ?? [];
  return name === undefined ? String(value).replaceAll("${", () => "$${") : read(name);
}

/** Adds the values of the credential that the parameters name. Returns the name if the file does not have it. */
export function withCredential(given: Values, document: Values): Values | string {
  const { litellm_credential_name: name, ...others } = given;
  if (name === undefined || name === "") return others;
  const found = asList(document.credential_list)
    .map(asObject)
    .find(({ credential_name }) => credential_name === name);
  return found === undefined ? String(name) : { ...asObject(found.credential_values), ...others };
}
