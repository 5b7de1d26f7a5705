/**
 * Defines `spec.config` of GatewayParameters: the `config` section of a file, without the settings that a data plane
 * cannot use. Pods mount the Secrets that it refers to, so no other object contains their values.
 */
import type { z } from "zod";
import { getLocalUse, isSecretSchema } from "../../core/schema.ts";
import { auditExportProblem } from "../../record/audit.ts";
import { historySchema } from "../../record/history-record.ts";
import { validate } from "../schema/problems.ts";
import { configSchema, redisSchema } from "../schema/schema.ts";
import { below, unwrap } from "../schema/schema-walk.ts";
import { type Path, pathText } from "../text/value-path.ts";
import { type Fields, fieldsOf, isObject, textOf } from "../text/value-shapes.ts";
import { clusterDocument } from "./snapshot.ts";

export const dataPlaneConfigSchema = configSchema.shape.config
  .unwrap()
  .omit({ adminAddr: true, statsAddr: true, allowConfigEdit: true, workers: true })
  .extend({
    store: redisSchema
      .optional()
      .describe("The Redis that all pods share. Without it, each pod has its own sessions, budgets, keys, and logins."),
    history: historySchema
      .omit({ folder: true })
      .extend({ postgres: historySchema.shape.postgres.unwrap() })
      .optional()
      .describe("Records every finished request, without bodies, and the usage by hour in PostgreSQL."),
  });

/** A key of a Secret in the namespace of the Gateway. */
export interface SecretKey {
  readonly name: string;
  readonly key: string;
}

export interface DataPlaneConfig {
  /** The settings as written, with references instead of the values of Secrets. */
  readonly written: Fields;
  readonly secrets: readonly SecretKey[];
  /** The values of `secrets`. No object or output may contain them. */
  readonly secretValues: readonly string[];
  readonly hasStore: boolean;
  readonly hasSessionKey: boolean;
  readonly drainMs: number;
  readonly spoolBytes: number;
}

interface ReadConfig {
  readonly problems: readonly { readonly path: string; readonly message: string }[];
  /** Undefined if there are problems. */
  readonly config: DataPlaneConfig | undefined;
}

/** Returns undefined if the namespace of the Secret is not known, so that its value is not checked. */
export type SecretReader = (secret: SecretKey) => { readonly text: string } | { readonly problem: string } | undefined;

const BASE = ["spec", "config"];

export function readDataPlaneConfig(written: Fields, read: SecretReader): ReadConfig {
  const problems: { path: string; message: string }[] = [];
  const unread = new Set<string>();
  const found = new Map<string, SecretKey & { readonly text: string }>();
  const fault = (path: Path, message: string): "" => {
    problems.push({ path: pathText(path), message });
    return "";
  };
  const value = mapValues(written, {
    fault,
    reference(reference, path) {
      const at = [...path, "secretRef"];
      const name = textOf(reference.name);
      const key = textOf(reference.key);
      unread.add(pathText(path));
      if (name === undefined || key === undefined) return fault(at, "`name` and `key` are required");
      if (reference.namespace !== undefined)
        return fault([...at, "namespace"], "not supported: pods use Secrets in the namespace of their Gateway");
      const answer = read({ name, key });
      if (answer === undefined) return "";
      if ("problem" in answer) return fault(at, answer.problem);
      unread.delete(pathText(path));
      found.set(secretId({ name, key }), { name, key, text: answer.text });
      return answer.text;
    },
  });
  const checked = validate(dataPlaneConfigSchema, clusterDocument({} as never), value, BASE);
  if (!checked.ok) problems.push(...checked.problems.filter(({ path }) => !unread.has(path)));
  if (!checked.ok) return { problems, config: undefined };
  const { store, sessionKey, drainTimeout, history, audit, telemetry } = checked.value;
  const ofAudit = auditExportProblem(audit, telemetry?.otlp?.signals);
  if (ofAudit !== undefined) fault([...BASE, "audit", "otlp"], ofAudit);
  if (problems.length > 0) return { problems, config: undefined };
  const secrets = [...found.values()];
  return {
    problems,
    config: {
      written,
      secrets: secrets.map(({ name, key }) => ({ name, key })),
      secretValues: secrets.map(({ text }) => text),
      hasStore: store !== undefined,
      hasSessionKey: sessionKey !== undefined,
      drainMs: drainTimeout,
      spoolBytes: history?.maxSpoolBytes ?? 0,
    },
  };
}

/** Returns the settings with a string in place of each reference to a Secret, or to a file with its value. */
export function replaceSecrets(
  { written, secrets }: DataPlaneConfig,
  replacement: (index: number, isFile: boolean) => string,
): Fields {
  const ids = secrets.map(secretId);
  const value = mapValues(written, {
    fault: () => "",
    reference: ({ name, key }, _, isFile) =>
      replacement(ids.indexOf(secretId({ name: String(name), key: String(key) })), isFile),
  });
  return fieldsOf(value);
}

function secretId({ name, key }: SecretKey): string {
  return `${name}/${key}`;
}

interface Visitor {
  /** Returns the value that replaces the faulty one. */
  fault(path: Path, message: string): unknown;
  /** Returns the value that replaces the reference. */
  reference(reference: Fields, path: Path, isFile: boolean): unknown;
}

function mapValues(written: Fields, visitor: Visitor): unknown {
  function walk(schemas: readonly z.ZodType[], value: unknown, path: Path): unknown {
    const marked = [...schemas, ...schemas.flatMap(unwrap)];
    const local = marked.map(getLocalUse).find((use) => use !== undefined);
    const isSecret = marked.some(isSecretSchema);
    if (isObject(value) && Object.keys(value).length === 1 && isObject(value.secretRef))
      if (isSecret || local?.isReadable) return visitor.reference(value.secretRef, path, !isSecret);
    if (local && value !== undefined && value !== null)
      return visitor.fault(path, `a data plane cannot use ${local.what}${local.isReadable ? ": use secretRef" : ""}`);
    if (isSecret && typeof value === "string" && !OPEN_URL.test(value))
      return visitor.fault(path, "a secret cannot be in plain text: use secretRef");
    const holders = schemas.flatMap(unwrap);
    if (Array.isArray(value)) return value.map((element, i) => walk(below(holders, i), element, [...path, i]));
    if (!isObject(value)) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, field]) => [key, walk(below(holders, key), field, [...path, key])]),
    );
  }
  return walk([dataPlaneConfigSchema], written, BASE);
}

/** The URL of a server without credentials is not secret. */
const OPEN_URL = /^[a-z]+:\/\/[^@?#\s]+$/;
