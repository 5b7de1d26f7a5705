/**
 * Writes YAML.
 */
import { Document, Scalar, stringify, visit } from "yaml";
import { escapeLines } from "./safe-text.ts";

const FORM = { version: "1.2", compat: "yaml-1.1", aliasDuplicateObjects: false, lineWidth: 0 } as const;

/** The text contains no characters that can forge output. Values with such characters are quoted, which keeps them. */
export function yamlText(value: unknown): string {
  const text = stringify(value, FORM);
  return escapeLines(text) === text ? text : quotedText(value);
}

function quotedText(value: unknown): string {
  const document = new Document(value, FORM);
  visit(document, {
    Scalar(_key, scalar) {
      if (escapeLines(String(scalar.value)) !== String(scalar.value)) scalar.type = Scalar.QUOTE_DOUBLE;
    },
  });
  return escapeLines(document.toString(FORM));
}
