/**
 * `gwctl what-if <method> <url>`: shows how a gateway would handle a request, policy by policy, without sending it.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readJson, readMembers } from "../../json/read-json.ts";
import type { TargetFlags } from "../instance/target.ts";
import { FORMATS, formatOf, isData, printData } from "../terminal/output.ts";
import { MESSAGE_CHARS, table, wrapWords } from "../terminal/table.ts";
import { CliError, type Paint, paintOf, printable, type Terminal, usageError } from "../terminal/terminal.ts";
import { httpUrl } from "./curl-arguments.ts";
import { openTarget } from "./open-target.ts";

const RESPONSE = peerInput("gateway/admin-response");
const ARGUMENT = peerInput("command-line/json");

export interface WhatIfFlags extends TargetFlags {
  readonly claims?: string;
  readonly token?: string;
  readonly header?: readonly string[];
  readonly source?: string;
  readonly listener?: string;
  readonly tool?: string;
  readonly arguments?: string;
  readonly prompt?: string;
  readonly resource?: string;
  readonly mcpMethod?: string;
  readonly model?: string;
  readonly repeat?: string;
  readonly exitCode?: boolean;
  readonly output?: string;
}

interface Report {
  readonly listener: string;
  readonly route: string | null;
  readonly status: number;
  readonly outcome: string;
  readonly reason?: { readonly code: string; readonly message: string; readonly detail?: string };
  readonly subject?: string;
  readonly policies: readonly {
    readonly phase: string;
    readonly of?: string;
    readonly policy: string;
    readonly verdict: string;
    readonly reason?: string;
  }[];
  readonly shadow?: readonly { readonly policy: string; readonly detail: string }[];
  readonly limits: readonly { readonly limit: string; readonly remaining: number; readonly resetSeconds: number }[];
  readonly backends: readonly { readonly name: string; readonly weight: number; readonly chosen: boolean }[];
  readonly item?: {
    readonly kind: string;
    readonly name: string;
    readonly target: string | null;
    readonly visible: boolean;
  };
}

export async function whatIf(method: string, url: string, flags: WhatIfFlags, terminal: Terminal): Promise<void> {
  const format = formatOf(flags.output, FORMATS);
  if (!url.startsWith("/")) httpUrl("a URL that is not a path", url);
  const question = questionOf(method, url, flags, terminal);
  const { admin } = await openTarget(undefined, flags, terminal);
  try {
    const { body } = await admin.post(ADMIN_PATHS.whatIf, { body: JSON.stringify(question) });
    const report = reportOf(body.toString(), admin.display);
    if (isData(format)) printData(report, format, terminal);
    else terminal.out(printable(formatReport(`${method.toUpperCase()} ${url}`, report, paintOf(terminal))));
    if (flags.exitCode === true && report.status >= 400) throw new CliError("the gateway would reject the request");
  } finally {
    admin.close();
  }
}

function questionOf(method: string, url: string, flags: WhatIfFlags, terminal: Terminal) {
  const { claims, token, source, listener, tool, prompt, resource, mcpMethod, model } = flags;
  if (claims !== undefined && token !== undefined) throw usageError("use --claims or --token, not both");
  const args = flags.arguments === undefined ? undefined : jsonObject("--arguments", flags.arguments);
  const repeat = flags.repeat === undefined ? undefined : Number(flags.repeat);
  if (repeat !== undefined && !(Number.isInteger(repeat) && repeat > 0))
    throw usageError(`invalid --repeat ${flags.repeat}: expected a number from 1`);
  const isMcp = [tool, prompt, resource, mcpMethod].some((one) => one !== undefined);
  return {
    request: {
      method: method.toUpperCase(),
      url,
      headers: Object.fromEntries((flags.header ?? []).map(headerOf)),
      source,
      listener,
      model,
      mcp: isMcp ? { method: mcpMethod, tool, arguments: args, prompt, resource } : undefined,
    },
    claims: claims === undefined ? undefined : jsonObject("--claims", claims),
    // `-` reads the token from standard input, because command lines are visible in the process list.
    token: token === "-" ? terminal.readStdin().trim() : token,
    repeat,
  };
}

function headerOf(text: string): [string, string] {
  const colon = text.indexOf(":");
  if (colon < 1) throw usageError(`invalid --header ${text}: expected "name: value"`);
  return [text.slice(0, colon).trim().toLowerCase(), text.slice(colon + 1).trim()];
}

function jsonObject(flag: string, text: string): Readonly<Record<string, unknown>> {
  const value = readMembers(ARGUMENT, text);
  if (value !== undefined) return value;
  throw usageError(`invalid ${flag}: expected a JSON object, for example '{"sub":"alice"}'`);
}

function reportOf(text: string, display: string): Report {
  try {
    const value = readJson(RESPONSE, text) as Report | null;
    if (Array.isArray(value?.policies) && Array.isArray(value?.backends)) return value as Report;
  } catch {
    // Invalid JSON is reported below.
  }
  throw new CliError(`${display} did not report: is that a gateway's admin interface?`);
}

function formatReport(requestLine: string, report: Report, paint: Paint): string {
  const { item, reason } = report;
  const title = `${requestLine} → ${report.status} ${report.outcome}`;
  const lines = [`${paint.columns === undefined ? title : wrapWords(title, paint.columns).join("\n")}\n\n`];
  const data = [
    ["listener", report.listener],
    ["route", report.route ?? "(none matches)"],
    ...(report.subject === undefined ? [] : [["subject", report.subject]]),
    ...report.backends.map(({ name, weight, chosen }) => ["backend", `${name}, weight ${weight}${chosen ? " ←" : ""}`]),
    ...(item
      ? [
          [
            item.kind,
            `${item.name}${item.target === null ? "" : ` of ${item.target}`}: ${item.visible ? "visible" : "hidden"}`,
          ],
        ]
      : []),
    ...report.limits.map(({ limit, remaining, resetSeconds }) => [
      "limit",
      `${limit}: ${remaining} left, resets in ${resetSeconds} s`,
    ]),
    ...(report.shadow ?? []).map(({ policy, detail }) => ["shadow", `${policy} would reject it: ${detail}`]),
    ...(reason ? [["reason", `${reason.code}: ${reason.detail ?? reason.message}`]] : []),
  ];
  lines.push(table(data, { paint, maxLastChars: MESSAGE_CHARS }));
  if (report.policies.length > 0) {
    const rows = report.policies.map(({ phase, of = phase, policy, verdict, reason: why = "" }) => [
      of,
      policy,
      verdict,
      why,
    ]);
    lines.push(
      "\n",
      table([["PHASE", "POLICY", "VERDICT", "REASON"], ...rows], { paint, maxLastChars: MESSAGE_CHARS }),
    );
  }
  return lines.join("");
}
