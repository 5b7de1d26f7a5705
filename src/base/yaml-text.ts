/**
 * Writes and parses YAML without positions, for output and for files of other programs.
 */
import { parse, stringify } from "yaml";

export function yamlText(value: unknown): string {
  return stringify(value, { version: "1.2", compat: "yaml-1.1", aliasDuplicateObjects: false, lineWidth: 0 });
}

export function parseYaml(text: string): unknown {
  return parse(text, { maxAliasCount: 100 });
}
