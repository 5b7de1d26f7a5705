/**
 * Resolves environment variables in configuration files: `${VAR}`, `${VAR:-default}`, and `$${` (spec 2.1). A marker of
 * the same length replaces each placeholder before parsing, so a value cannot change the structure of the document.
 */

import { ConfigError } from "../../core/config-error.ts";
import type { VariableValue } from "../../record/trace/redact.ts";
import { shownName } from "./value-path.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

export function processEnvironment(): Environment {
  return process.env;
}

export type Placeholder =
  | { readonly kind: "variable"; readonly name: string; readonly fallback: string | undefined }
  | { readonly kind: "literal"; readonly text: string };

export interface MarkedText {
  /** The string has the same length and line breaks as the original. */
  readonly text: string;
  readonly placeholders: readonly Placeholder[];
}

/**
 * A marker is START, one or two digits, padding, and END, in private-use characters.
 */
const START = 0xe000;
const END = 0xe001;
const PAD = 0xe002;
const DIGIT = 0xe100;
const BASE = 2048;
const MARK = /\ue000[\ue100-\uf0ff]{0,2}\ue002*\ue001/g;

const PLACEHOLDER =
  /\$\$\{(?:[A-Za-z_][A-Za-z0-9_]*(?::-[^}\r\n]*)?\})?|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}\r\n]*))?\}/g;

export function markPlaceholders(text: string): MarkedText {
  const placeholders: Placeholder[] = [];
  const marked = text.replace(PLACEHOLDER, (whole, name: string | undefined, fallback: string | undefined) => {
    placeholders.push(
      name === undefined ? { kind: "literal", text: whole.slice(1) } : { kind: "variable", name, fallback },
    );
    return mark(placeholders.length - 1, whole.length);
  });
  return { text: marked, placeholders };
}

export function hasMarkCharacters(text: string): boolean {
  return /[\ue000-\ue002]/.test(text);
}

export type Resolved = {
  readonly changed: boolean;
  readonly text: string;
  /** `names` contains all variables of the string, and `missing` contains unset variables without a default. */
  readonly names: readonly string[];
  readonly missing: readonly string[];
  readonly values: readonly VariableValue[];
};

/** Resolves the markers of a parsed scalar. With `namesForUnset`, the name of an unset variable replaces its marker. */
export function resolveMarks(
  text: string,
  placeholders: readonly Placeholder[],
  environment: Environment,
  namesForUnset = false,
): Resolved {
  if (!text.includes("\ue000")) return { changed: false, text, names: [], missing: [], values: [] };
  const names: string[] = [];
  const missing: string[] = [];
  const values: VariableValue[] = [];
  const resolved = text.replace(MARK, (found) => {
    const placeholder = placeholders[indexOf(found)];
    if (!placeholder) return found;
    if (placeholder.kind === "literal") return placeholder.text;
    names.push(placeholder.name);
    const value = Object.hasOwn(environment, placeholder.name) ? environment[placeholder.name] : undefined;
    // As in a shell, the default also replaces an empty value.
    if (placeholder.fallback !== undefined && (value === undefined || value === "")) return placeholder.fallback;
    if (value === undefined) missing.push(placeholder.name);
    else values.push({ name: placeholder.name, value });
    return value ?? (namesForUnset ? placeholder.name : "");
  });
  return { changed: true, text: resolved, names, missing, values };
}

/** The shortest placeholder, `$${`, has room for the start, one digit, and the end. */
function mark(index: number, length: number): string {
  const digits = length >= 4 ? [DIGIT + Math.floor(index / BASE), DIGIT + (index % BASE)] : [DIGIT + index];
  const padding = length - 2 - digits.length;
  return String.fromCharCode(START, ...digits, ...new Array<number>(padding).fill(PAD), END);
}

function indexOf(found: string): number {
  let index = 0;
  for (let i = 1; i < found.length - 1; i++) {
    const code = found.charCodeAt(i);
    if (code >= DIGIT) index = index * BASE + (code - DIGIT);
  }
  return index;
}

/** Maps a resolved field name to its source, for example `${KEY}`. */
export type VariableNames = ReadonlyMap<string, string>;

export function withoutVariableNames(
  problems: readonly ConfigError[],
  names: VariableNames | undefined,
): readonly ConfigError[] {
  if (names === undefined || names.size === 0) return problems;
  const hide = (text: string): string => {
    let hidden = text;
    // Paths may contain the shortened form of a name (`shownName`), so both forms are replaced.
    for (const [name, written] of names)
      for (const form of [name, shownName(name)]) if (form !== "") hidden = hidden.replaceAll(form, () => written);
    return hidden;
  };
  return problems.map(({ position, path, message }) => new ConfigError(position, hide(path), hide(message)));
}
