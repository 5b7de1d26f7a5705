/**
 * `gwctl keys create|list|revoke` manages API keys in the store of a running gateway. `create` writes only the key to
 * standard output, so the key can be piped to a file.
 */

import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { defined } from "../../json/json.ts";
import { readJson } from "../../json/read-json.ts";
import type { TargetFlags } from "../instance/target.ts";
import { FORMATS, formatOf, isData, printData } from "../terminal/output.ts";
import { type Cell, table } from "../terminal/table.ts";
import { CliError, paintOf, printable, type Terminal, usageError } from "../terminal/terminal.ts";
import { type Fields, fieldsOf, listOf, numberOf } from "../views/units.ts";
import { openTarget } from "./open-target.ts";

const RESPONSE = peerInput("gateway/admin-response");

const DURATION = /^(\d+)([hdw])$/;
const ISO_DATE = /^\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d))?$/;
const UNIT_MS: Readonly<Record<string, number>> = { h: 3_600_000, d: 86_400_000, w: 7 * 86_400_000 };

export interface CreateFlags extends TargetFlags {
  readonly name: string;
  readonly forNamespace?: string;
  readonly expires?: string;
  readonly models?: string;
  readonly cost?: string;
  readonly tokens?: string;
  readonly per?: string;
  readonly metadata?: readonly string[];
  readonly output?: string;
}

export async function createKey(instance: string | undefined, flags: CreateFlags, terminal: Terminal): Promise<void> {
  const format = formatOf(flags.output, FORMATS);
  const budget = budgetOf(flags);
  const make = {
    name: flags.name,
    ...defined({ namespace: flags.forNamespace }),
    ...(flags.expires === undefined ? {} : { expiresAtMs: expiryOf(flags.expires) }),
    ...(flags.models === undefined ? {} : { models: flags.models.split(",").map((name) => name.trim()) }),
    ...defined({ budget }),
    metadata: Object.fromEntries((flags.metadata ?? []).map(metadataOf)),
  };
  const { id, key } = await postKeys(instance, flags, { make }, terminal);
  if (typeof key !== "string") throw new CliError("the gateway returned no key");
  if (isData(format)) {
    printData({ id, name: flags.name, key }, format, terminal);
    return;
  }
  terminal.err(printable(`key ${String(id)} of ${flags.name}; it is shown only now:\n`));
  terminal.out(printable(`${key}\n`));
}

export async function listKeys(
  instance: string | undefined,
  flags: TargetFlags & { readonly output?: string },
  terminal: Terminal,
): Promise<void> {
  const format = formatOf(flags.output, FORMATS);
  const { admin } = await openTarget(instance, flags, terminal);
  try {
    const response = await admin.json<{ keys: unknown }>(ADMIN_PATHS.keys, "keys");
    const keys = listOf(response.keys);
    if (isData(format)) printData(response, format, terminal);
    else if (keys.length === 0) terminal.err("no keys; create one with gwctl keys create --name <name>\n");
    else
      terminal.out(
        table([["ID", "NAME", "MODELS", "BUDGET", "SPENT", "EXPIRES", "METADATA"], ...keys.map(rowOf)], {
          paint: paintOf(terminal),
        }),
      );
  } finally {
    admin.close();
  }
}

export async function revokeKey(
  id: string,
  instance: string | undefined,
  flags: TargetFlags,
  terminal: Terminal,
): Promise<void> {
  await postKeys(instance, flags, { revoke: id }, terminal);
  terminal.out(printable(`revoked ${id}; it is rejected within 2 s\n`));
}

async function postKeys(
  instance: string | undefined,
  flags: TargetFlags,
  body: object,
  terminal: Terminal,
): Promise<Fields> {
  const { admin } = await openTarget(instance, flags, terminal);
  try {
    const response = await admin.post(ADMIN_PATHS.keys, { body: JSON.stringify(body) });
    return fieldsOf(readJson(RESPONSE, response.body));
  } finally {
    admin.close();
  }
}

function rowOf(key: Fields): Cell[] {
  const { cost, tokens, per } = fieldsOf(key.budget);
  const limit = cost === undefined ? (tokens === undefined ? "" : `${String(tokens)} tokens`) : `$${String(cost)}`;
  const expires = typeof key.expiresAt === "string" ? key.expiresAt.slice(0, "2026-11-15".length) : "never";
  return [
    String(key.id),
    key.namespace === undefined ? String(key.name) : `${String(key.namespace)}/${String(key.name)}`,
    Array.isArray(key.models) ? key.models.join(", ") : "all",
    limit === "" ? "" : `${limit} per ${String(per)}`,
    key.spent === undefined ? "" : String(numberOf(key.spent)),
    key.expired === true ? { text: `${expires} (expired)`, tone: "bad" } : expires,
    Object.entries(fieldsOf(key.metadata))
      .map(([name, value]) => `${name}=${String(value)}`)
      .join(" "),
  ];
}

function budgetOf({ cost, tokens, per }: CreateFlags): object | undefined {
  if (cost === undefined && tokens === undefined) {
    if (per !== undefined) throw usageError("--per needs --cost or --tokens");
    return undefined;
  }
  if (cost !== undefined && tokens !== undefined) throw usageError("use one of --cost and --tokens");
  if (per !== "day" && per !== "week" && per !== "month") throw usageError("--per is day, week or month");
  const amount = Number(cost ?? tokens);
  if (!(amount > 0)) throw usageError(`"${cost ?? tokens}" is not a positive number`);
  return cost === undefined ? { tokens: amount, per } : { cost: amount, per };
}

function expiryOf(text: string): number {
  const [, count, unit] = DURATION.exec(text) ?? [];
  const atMs =
    count === undefined
      ? ISO_DATE.test(text)
        ? Date.parse(text)
        : Number.NaN
      : Date.now() + Number(count) * (UNIT_MS[unit ?? ""] ?? 0);
  if (Number.isNaN(atMs)) throw usageError(`"${text}" is neither a duration such as 90d nor a date such as 2027-01-31`);
  if (atMs <= Date.now()) throw usageError(`${text} is in the past`);
  return atMs;
}

function metadataOf(text: string): [string, string] {
  const at = text.indexOf("=");
  if (at < 1) throw usageError(`"${text}" is not name=value`);
  return [text.slice(0, at), text.slice(at + 1)];
}
