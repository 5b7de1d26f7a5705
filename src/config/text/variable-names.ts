/**
 * Field names that variables made. Such a name may be a secret by mistake (`${KEY}: …`), so messages show the variable and
 * not what it holds.
 */
import { ConfigError } from "../../core/config-error.ts";
import { shownName } from "./value-path.ts";

/** A name as the document has it now → as it is written, for example `${KEY}`. */
export type VariableNames = ReadonlyMap<string, string>;

export function withoutVariableNames(
  problems: readonly ConfigError[],
  names: VariableNames | undefined,
): readonly ConfigError[] {
  if (names === undefined || names.size === 0) return problems;
  const hide = (text: string): string => {
    let hidden = text;
    // Paths show some names shortened.
    for (const [name, written] of names)
      for (const form of [name, shownName(name)]) if (form !== "") hidden = hidden.replaceAll(form, () => written);
    return hidden;
  };
  return problems.map(({ position, path, message }) => new ConfigError(position, hide(path), hide(message)));
}
