/**
 * `gwctl access` shows which routes, MCP tools, and models each known principal may use, and why.
 */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readYaml } from "../../base/read-yaml.ts";
import { readJson } from "../../json/read-json.ts";
import type { TargetFlags } from "../instance/target.ts";
import { formatOf, isData, printData } from "../terminal/output.ts";
import { MESSAGE_CHARS, table } from "../terminal/table.ts";
import { CliError, type Paint, paintOf, printable, type Terminal, usageError } from "../terminal/terminal.ts";
import { openTarget } from "./open-target.ts";

const RESPONSE = peerInput("gateway/admin-response");
const PRINCIPALS = peerInput("file/principals");

export interface AccessFlags extends TargetFlags {
  readonly whoCan?: readonly string[];
  readonly whatCan?: string;
  readonly principals?: string;
  readonly diff?: readonly string[];
  readonly denied?: boolean;
  readonly exitCode?: boolean;
  readonly output?: string;
}

interface Principal {
  readonly name: string;
  readonly kind: string;
  readonly attributes: Readonly<Record<string, unknown>>;
}

type AccessItem = Readonly<Record<"kind" | "name" | "listener" | "route", string>>;

interface AccessReason extends Readonly<Record<"code" | "policy" | "rule" | "at", string | null>> {
  readonly allowed: boolean;
  readonly text: string;
}

interface AccessReview {
  readonly principals: readonly Principal[];
  readonly items: readonly AccessItem[];
  readonly reasons: readonly AccessReason[];
  /** `results[item][principal]` is an index into `reasons`. */
  readonly results: readonly (readonly number[])[];
  readonly notes: readonly string[];
}

interface Report {
  readonly review: AccessReview;
  readonly after?: AccessReview;
  readonly problems: readonly string[];
}

interface Row {
  readonly principal: Principal;
  readonly item: AccessItem;
  readonly reason: AccessReason;
}

const ACCESS_FORMATS = ["text", "json", "yaml", "csv"] as const;
const TIMEOUT_MS = 150_000;
const MAX_NAMES = 8;

export async function access(name: string | undefined, flags: AccessFlags, terminal: Terminal): Promise<void> {
  const format = formatOf(flags.output, ACCESS_FORMATS);
  const matches = flags.whatCan === undefined ? () => true : principalFilter(flags.whatCan);
  const question = {
    ...(flags.whoCan === undefined ? {} : { items: flags.whoCan.map(checkedItem) }),
    ...(flags.principals === undefined ? {} : { principals: readPrincipals(flags.principals) }),
    ...(flags.diff === undefined ? {} : { sources: flags.diff.map(readSource) }),
  };
  const { admin } = await openTarget(name, flags, terminal);
  let report: Report;
  try {
    const body = JSON.stringify(question);
    const response = await admin.post(ADMIN_PATHS.access, { body, timeoutMs: TIMEOUT_MS });
    report = parseReport(response.body.toString(), admin.display);
  } finally {
    admin.close();
  }
  if (isData(format)) {
    printData(report, format, terminal);
    return;
  }
  const paint = paintOf(terminal);
  for (const note of [...report.problems, ...report.review.notes]) terminal.err(printable(`note: ${note}\n`));
  if (report.after !== undefined) {
    const changes = accessChanges(report.review, report.after, matches);
    terminal.out(format === "csv" ? csv(changes.map(changeCells)) : changesText(changes, paint));
    if (flags.exitCode === true && changes.length > 0) throw new CliError("access changes");
    return;
  }
  const rows = rowsIn(report.review).filter(({ principal }) => matches(principal));
  const shown = flags.denied === true ? rows : rows.filter(({ reason }) => reason.allowed);
  if (format === "csv") terminal.out(csv([CSV_HEADER, ...rows.map(rowCells)]));
  else if (flags.whoCan === undefined && flags.whatCan === undefined) terminal.out(summaryText(report.review, paint));
  else if (shown.length === 0) terminal.err("no principal has access\n");
  else terminal.out(rowsText(shown, paint));
}

function checkedItem(item: string): string {
  if (/^(?:route:.+|model:.+|tool:[^/]+\/.+)$/s.test(item)) return item;
  throw usageError(`invalid --who-can ${item}: expected route:name, tool:server/name, or model:name`);
}

/** Matches a principal by `name`, by `kind:name`, or by `field:value` for a claim or key metadata. */
function principalFilter(text: string): (principal: Principal) => boolean {
  const colon = text.indexOf(":");
  const field = text.slice(0, Math.max(colon, 0));
  const value = text.slice(colon + 1);
  return ({ name, kind, attributes }) => {
    if (name === text) return true;
    if (colon < 1) return false;
    if (field === kind && name === value) return true;
    const found = Object.hasOwn(attributes, field) ? attributes[field] : undefined;
    return Array.isArray(found) ? found.map(String).includes(value) : found !== undefined && String(found) === value;
  };
}

function readSource(file: string): { file: string; text: string } {
  try {
    return { file: resolve(file), text: readFileSync(file, "utf8") };
  } catch (error) {
    throw new CliError(`cannot read ${file}: ${(error as Error).message}`);
  }
}

function readPrincipals(file: string): readonly { readonly name: string; readonly claims: object }[] {
  const expected = `${file}: expected a list of {name, claims}`;
  let value: unknown;
  try {
    value = readYaml(PRINCIPALS, readSource(file).text);
  } catch (error) {
    throw error instanceof CliError ? error : new CliError(`${file}: ${(error as Error).message}`);
  }
  if (!Array.isArray(value)) throw new CliError(expected);
  return value.map((one: { name?: unknown; claims?: unknown } | null) => {
    if (typeof one?.name !== "string" || typeof one.claims !== "object" || one.claims === null)
      throw new CliError(expected);
    return { name: one.name, claims: one.claims };
  });
}

function parseReport(text: string, display: string): Report {
  try {
    const value = readJson(RESPONSE, text) as Report | null;
    if (Array.isArray(value?.review?.results)) return value as Report;
  } catch {
    // Invalid JSON is reported below.
  }
  throw new CliError(`${display} did not report: is that a gateway's admin interface?`);
}

function rowsIn({ principals, items, reasons, results }: AccessReview): Row[] {
  return items.flatMap((item, i) =>
    principals.flatMap((principal, p) => {
      const reason = reasons[results[i]?.[p] ?? -1];
      return reason === undefined ? [] : [{ principal, item, reason }];
    }),
  );
}

function itemText({ kind, name }: AccessItem): string {
  return `${kind}:${name}`;
}

function summaryText(review: AccessReview, paint: Paint): string {
  if (review.items.length === 0) return "no routes, tools or models\n";
  const rows = review.items.map((item, i) => {
    const allowed = review.principals.filter((_, p) => review.reasons[review.results[i]?.[p] ?? -1]?.allowed);
    const names = allowed.slice(0, MAX_NAMES).map(({ name }) => name);
    const more = allowed.length > MAX_NAMES ? `, and ${allowed.length - MAX_NAMES} more` : "";
    const share = `${allowed.length} of ${review.principals.length}`;
    return [itemText(item), item.route, share, `${names.join(", ")}${more}`];
  });
  return table([["ITEM", "ROUTE", "ALLOWED", "PRINCIPALS"], ...rows], { paint, maxLastChars: MESSAGE_CHARS });
}

function rowsText(rows: readonly Row[], paint: Paint): string {
  const cells = rows.map(({ principal, item, reason }) => [
    principal.name,
    itemText(item),
    item.route,
    { text: reason.allowed ? "yes" : "no", tone: reason.allowed ? ("good" as const) : ("bad" as const) },
    reason.text,
  ]);
  return table([["PRINCIPAL", "ITEM", "ROUTE", "ACCESS", "WHY"], ...cells], { paint, maxLastChars: MESSAGE_CHARS });
}

interface Change {
  readonly item: AccessItem;
  readonly isGain: boolean;
  readonly principals: readonly string[];
  readonly why: string;
}

/** A principal or an item that only one of the configurations has counts as denied in the other. */
function accessChanges(
  before: AccessReview,
  after: AccessReview,
  matches: (principal: Principal) => boolean,
): Change[] {
  const key = ({ principal, item }: Row): string =>
    JSON.stringify([item.kind, item.name, item.listener, item.route, principal.name]);
  const allowed = (review: AccessReview): Map<string, Row> =>
    new Map(
      rowsIn(review)
        .filter(({ reason, principal }) => reason.allowed && matches(principal))
        .map((row) => [key(row), row]),
    );
  const [old, new_] = [allowed(before), allowed(after)];
  const found = new Map<string, { item: AccessItem; isGain: boolean; principals: string[]; why: string }>();
  const add = ({ item, principal, reason }: Row, isGain: boolean): void => {
    const group = JSON.stringify([isGain, item.kind, item.name, item.listener, item.route]);
    const change = found.get(group) ?? { item, isGain, principals: [], why: reason.text };
    change.principals.push(principal.name);
    found.set(group, change);
  };
  for (const [one, row] of new_) if (!old.has(one)) add(row, true);
  for (const [one, row] of old) if (!new_.has(one)) add(row, false);
  return [...found.values()];
}

function changesText(changes: readonly Change[], paint: Paint): string {
  if (changes.length === 0) return "no access changes\n";
  return changes
    .map(({ item, isGain, principals }) => {
      const count = principals.length === 1 ? "1 principal" : `${principals.length} principals`;
      const verb = principals.length === 1 ? (isGain ? "gains" : "loses") : isGain ? "gain" : "lose";
      const names = principals.slice(0, MAX_NAMES).join(", ");
      const more = principals.length > MAX_NAMES ? ", …" : "";
      const text = printable(`${count} ${verb} ${itemText(item)} (route ${item.route}): ${names}${more}`);
      return `${paint(text, isGain ? "warn" : "dim")}\n`;
    })
    .join("");
}

const CSV_HEADER = ["principal", "kind", "item", "listener", "route", "access", "code", "policy", "rule", "position"];

function rowCells({ principal, item, reason }: Row): string[] {
  const { allowed, code, policy, rule, at } = reason;
  const verdict = allowed ? "yes" : "no";
  const why = [code, policy, rule, at].map((one) => one ?? "");
  return [principal.name, principal.kind, itemText(item), item.listener, item.route, verdict, ...why];
}

function changeCells({ item, isGain, principals, why }: Change): string[] {
  return [isGain ? "gain" : "lose", itemText(item), item.listener, item.route, principals.join(" "), why];
}

function csv(rows: readonly (readonly string[])[]): string {
  return rows.map((row) => `${row.map(csvCell).join(",")}\n`).join("");
}

/** A leading quote prevents spreadsheets from running the cell as a formula. */
function csvCell(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
