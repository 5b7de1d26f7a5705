/**
 * Warns of a secret that was surely meant as a variable: `key: $OPENAI_API_KEY` is plain text, and the provider would
 * refuse it as a wrong key long after the start. Only where the schema asks for a secret, and nothing is quoted: a
 * password may begin with a dollar sign.
 */
import type { z } from "zod";
import { ConfigError } from "../../core/config-error.ts";
import { isSecretSchema } from "../../core/schema.ts";
import type { Environment } from "../text/env.ts";
import { type Path, pathText } from "../text/value-path.ts";
import type { SourceDocument } from "../text/yaml-source.ts";
import { below, unwrap } from "./schema-walk.ts";

/** The whole value, or all that follows the scheme of a header. */
const PLAIN_VARIABLE = /^(?:(?:bearer|basic|token) +)?\$([A-Za-z_][A-Za-z0-9_]*)$/i;
/** How variables are written by habit; another spelling counts if there is such a variable. */
const IN_CAPITALS = /^[A-Z_][A-Z0-9_]+$/;

const MESSAGE = "`$NAME` without braces is plain text: write `${NAME}` for the variable";

export function plainDollarWarnings(
  schema: z.ZodType,
  document: SourceDocument,
  environment: Environment,
): ConfigError[] {
  const warnings: ConfigError[] = [];
  const walk = (schemas: readonly z.ZodType[], value: unknown, path: Path): void => {
    if (typeof value === "string") {
      if (!schemas.some(isSecretSchema) || !isMeantAsVariable(value, environment)) return;
      warnings.push(new ConfigError(document.position(path), pathText(path), MESSAGE));
    } else if (typeof value === "object" && value !== null) {
      const entries = Array.isArray(value) ? value.entries() : Object.entries(value);
      for (const [key, inner] of entries) walk(below(schemas, key), inner, [...path, key]);
    }
  };
  walk(unwrap(schema), document.value, []);
  return warnings;
}

function isMeantAsVariable(text: string, environment: Environment): boolean {
  const name = PLAIN_VARIABLE.exec(text)?.[1];
  return name !== undefined && (IN_CAPITALS.test(name) || Object.hasOwn(environment, name));
}
