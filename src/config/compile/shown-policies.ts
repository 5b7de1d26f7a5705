/**
 * The policies of a scope as `/config_dump` shows them: as they were written, with secrets redacted.
 */
import type { Redaction } from "../../observe/trace/redact.ts";
import type { PlacedPolicy } from "../load/normal-config.ts";
import { shownConfig } from "../schema/shown-config.ts";
import { definitionOf } from "./policy-definition.ts";

export function shownPolicies(placed: readonly PlacedPolicy[], redaction: Redaction): Record<string, unknown> {
  const shown: Record<string, unknown> = {};
  for (const { kind, place, config, written } of placed) {
    const { schema } = definitionOf(kind);
    const value = shownConfig(schema, written ?? writtenAt(place) ?? config, redaction);
    // The same kind twice on one scope comes from resource documents: both are shown.
    shown[kind] = shown[kind] === undefined ? value : [shown[kind], value].flat();
  }
  return shown;
}

function writtenAt({ document, path }: PlacedPolicy["place"]): unknown {
  let value = document.value;
  for (const key of path) value = (value as Record<string | number, unknown> | null | undefined)?.[key];
  return value;
}
