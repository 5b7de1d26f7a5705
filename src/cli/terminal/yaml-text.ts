/**
 * Values as YAML text. A file of its own, loaded when it is needed: the library is large, and bundled it can be
 * named only by an import that is not lazy.
 */
import { parse, stringify } from "yaml";

/** Plain strings that YAML 1.1 readers take for booleans are quoted; no anchors for values that repeat. */
export function yamlText(value: unknown): string {
  return stringify(value, { version: "1.2", compat: "yaml-1.1", aliasDuplicateObjects: false, lineWidth: 0 });
}

/** Throws with the place and the reason; JSON is YAML too. */
export function parseYaml(text: string): unknown {
  return parse(text, { maxAliasCount: 100 });
}
