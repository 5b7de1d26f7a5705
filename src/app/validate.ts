/**
 * Implements `gateway --validate-only` and `gateway --test`, which compile the configuration, report problems, and run
 * its tests as dry runs. Also handles what-if requests of the admin interface.
 */

import type { WhatIf } from "../admin/endpoints/what-if.ts";
import type { Clock } from "../base/clock.ts";
import { type DryConfigOptions, dryRunnerOf, openDryConfig } from "../config/dry-config.ts";
import { openSources, type PlacedTest, type SourceList, type SourceText } from "../config/load/load.ts";
import type { Finding } from "../config/prepare.ts";
import type { AccessTest, DescribedRequest, RequestTest } from "../config/schema/tests-schema.ts";
import type { Environment } from "../config/text/env.ts";
import { ConfigError } from "../core/config-error.ts";
import type { GivenToken } from "../core/dry-env.ts";
import type { Topology } from "../core/topology.ts";
import { defined } from "../json/json.ts";
import {
  ANONYMOUS,
  claimPrincipals,
  configuredPrincipals,
  namedItems,
  reviewAccess,
  withUniqueNames,
} from "../pipeline/dry-run/access-review.ts";
import type { DryReport } from "../pipeline/dry-run/dry-report.ts";
import type { DryRequest } from "../pipeline/dry-run/dry-request.ts";
import type { DryRunner } from "../pipeline/dry-run/dry-run.ts";

export interface ValidateOptions {
  readonly sources: SourceList;
  readonly environment: Environment;
  readonly clock: Clock;
  /** If true, unset variables are reported as notes instead of errors. */
  readonly allowMissingEnv?: boolean;
  readStdin(): string;
}

/** Returns all findings. The configuration is valid unless one of them is an error. */
export function validateOnly(options: ValidateOptions): readonly Finding[] {
  try {
    const { prepared, close } = openDryConfig(openSources(options.sources, options.readStdin).read(), options);
    close();
    return prepared.findings ?? [];
  } catch (error) {
    // A source path could not be read.
    if (!(error instanceof ConfigError)) throw error;
    return [{ severity: "error", problem: error }];
  }
}

export const REPORT_FORMATS = ["text", "json", "github"] as const;
export type ReportFormat = (typeof REPORT_FORMATS)[number];

export interface ValidationReport {
  readonly stdout: string;
  readonly stderr: string;
  readonly code: 0 | 1;
}

export function validationReport(
  findings: readonly Finding[],
  format: ReportFormat,
  strict: boolean,
): ValidationReport {
  const errors = findings.filter(({ severity }) => severity === "error").length;
  const warnings = findings.filter(({ severity }) => severity === "warning").length;
  const isValid = errors === 0 && (!strict || warnings === 0);
  const code = isValid ? 0 : 1;
  if (format === "json") {
    return {
      stdout: `${JSON.stringify({ valid: isValid, findings: findings.map(asJson) }, null, 2)}\n`,
      stderr: "",
      code,
    };
  }
  const verdict = isValid ? "configuration is valid\n" : "";
  if (format === "github") return { stdout: findings.map(annotation).join("") + verdict, stderr: "", code };
  const refusal =
    errors === 0 && !isValid ? `configuration rejected: --strict allows no warnings, found ${warnings}\n` : "";
  return { stdout: verdict, stderr: findings.map(textLine).join("") + refusal, code };
}

/** Errors have no prefix, like those that a failed start prints. */
function textLine({ severity, problem }: Finding): string {
  return `${severity === "error" ? "" : `${severity}: `}${problem.toLine()}\n`;
}

function asJson({ severity, problem: { position, path, message } }: Finding) {
  return { severity, ...position, ...(path === "" ? {} : { path }), message };
}

const COMMANDS = { error: "error", warning: "warning", note: "notice" } as const;

function annotation({ severity, problem: { position, path, message } }: Finding): string {
  const place =
    position === undefined ? "" : ` file=${escapeProperty(position.file)},line=${position.line},col=${position.column}`;
  return `::${COMMANDS[severity]}${place}::${escapeData(path === "" ? message : `${path}: ${message}`)}\n`;
}

function escapeData(text: string): string {
  return text.replaceAll("%", "%25").replaceAll("\r", "%0D").replaceAll("\n", "%0A");
}

function escapeProperty(text: string): string {
  return escapeData(text).replaceAll(":", "%3A").replaceAll(",", "%2C");
}

interface TestResult {
  readonly name: string;
  /** The list is empty if the test passed. */
  readonly differences: readonly ConfigError[];
  /** The value is undefined for an access test, or if the dry run failed. */
  readonly report: DryReport | undefined;
}

interface Difference {
  readonly field: string;
  readonly message: string;
}

async function runConfigTests(
  tests: readonly PlacedTest[],
  topology: Topology,
  runner: DryRunner,
  clock: Clock,
): Promise<TestResult[]> {
  const results: TestResult[] = [];
  for (const { test, document, path } of tests) {
    const at = (field: readonly string[], message: string): ConfigError =>
      new ConfigError(document.position([...path, ...field]), "", `${JSON.stringify(test.name)}: ${message}`);
    if ("expectAccess" in test) {
      const differences = await accessDifferences(test, topology, runner, clock);
      results.push({
        name: test.name,
        differences: differences.map(({ field, message }) => at(["expectAccess", field], message)),
        report: undefined,
      });
      continue;
    }
    try {
      const report = await runner.run(dryRequestOf(test.request, givenOf(test)), { repeat: test.repeat ?? 1 });
      const differences = [...differencesOf(test, report), ...(await itemDifferences(test, runner))];
      results.push({
        name: test.name,
        differences: differences.map(({ field, message }) => at(["expect", field], message)),
        report,
      });
    } catch (error) {
      results.push({ name: test.name, differences: [at(["request"], (error as Error).message)], report: undefined });
    }
  }
  return results;
}

export function dryRequestOf(described: DescribedRequest, given: GivenToken | undefined): DryRequest {
  const { method, mcp, model, body } = described;
  const hasBody = mcp !== undefined || model !== undefined || body !== undefined;
  return { ...described, method: method ?? (hasBody ? "POST" : "GET"), given };
}

async function accessDifferences(
  { expectAccess, principals: sets = [] }: AccessTest,
  topology: Topology,
  runner: DryRunner,
  clock: Clock,
): Promise<Difference[]> {
  const { items, principals, reasons, results } = await reviewAccess({
    topology,
    runner,
    principals: withUniqueNames([...configuredPrincipals(topology), ...claimPrincipals(sets, clock.now()), ANONYMOUS]),
    named: namedItems(Object.keys(expectAccess)),
    isWanted: (kind, name) => Object.hasOwn(expectAccess, `${kind}:${name}`),
  });
  return Object.entries(expectAccess).flatMap(([item, expected]): Difference[] => {
    const rows = items.flatMap(({ kind, name }, i) => (`${kind}:${name}` === item ? [results[i] ?? []] : []));
    if (rows.length === 0) return [{ field: item, message: `${item} does not exist` }];
    const reasonOf = (p: number) => {
      const found = rows.map((row) => reasons[row[p] ?? -1]);
      return found.find((reason) => reason?.allowed) ?? found[0];
    };
    const differences = principals.flatMap(({ name }, p) => {
      const reason = reasonOf(p);
      const isExpected = expected.includes(name);
      if (reason === undefined || reason.allowed === isExpected) return [];
      return [{ field: item, message: `${name} ${isExpected ? "may not" : "may"} use ${item}: ${reason.text}` }];
    });
    const unknown = expected.filter((one) => !principals.some(({ name }) => name === one));
    return [
      ...differences,
      ...unknown.map((name) => ({ field: item, message: `there is no client named ${show(name)}` })),
    ];
  });
}

function givenOf({ claims }: RequestTest): GivenToken | undefined {
  return claims === undefined ? undefined : { claims };
}

function differencesOf({ expect }: RequestTest, report: DryReport): Difference[] {
  const found: Difference[] = [];
  const differ = (field: string, wanted: unknown, got: unknown): void => {
    const why = field === "reason" ? "" : reasonText(report);
    found.push({ field, message: `expected ${field} ${show(wanted)}, got ${show(got)}${why}` });
  };
  const { status, outcome, route, backend, reason, subject, headers } = expect;
  if (status !== undefined && status !== report.status) differ("status", status, report.status);
  if (outcome !== undefined && outcome !== report.outcome) differ("outcome", outcome, report.outcome);
  if (route !== undefined && route !== report.route) differ("route", route, report.route);
  const chosen = report.outcome === "forwarded" ? report.backends.filter(({ weight }) => weight > 0) : [];
  if (backend !== undefined && !chosen.some(({ name }) => name === backend))
    differ("backend", backend, chosen.length === 0 ? null : chosen.map(({ name }) => name).join(", "));
  const actual = report.reason;
  if (reason !== undefined && actual?.code !== reason && !`${actual?.message}: ${actual?.detail}`.includes(reason))
    differ("reason", reason, actual === undefined ? null : `${actual.code}: ${actual.detail ?? actual.message}`);
  if (subject !== undefined && report.subject?.includes(subject) !== true)
    differ("subject", subject, report.subject ?? null);
  for (const [name, value] of Object.entries(headers ?? {})) {
    const got = report.responseHeaders[name.toLowerCase()] ?? null;
    if (got !== value)
      found.push({ field: "headers", message: `expected header ${name} ${show(value)}, got ${show(got)}` });
  }
  return found;
}

async function itemDifferences(test: RequestTest, runner: DryRunner): Promise<Difference[]> {
  const found: Difference[] = [];
  for (const field of ["visible", "hidden"] as const) {
    for (const tool of test.expect[field] ?? []) {
      const { arguments: args } = test.request.mcp ?? {};
      const mcp = { tool, ...defined({ arguments: args }) };
      const report = await runner.run(dryRequestOf({ ...test.request, mcp }, givenOf(test)));
      const isVisible = report.item?.visible === true && report.outcome === "forwarded";
      if (isVisible !== (field === "visible"))
        found.push({
          field,
          message: `expected tool ${show(tool)} to be ${field}, it is ${isVisible ? "visible" : `hidden${reasonText(report)}`}`,
        });
    }
  }
  return found;
}

function reasonText({ reason }: DryReport): string {
  return reason === undefined ? "" : ` (${reason.code}: ${reason.detail ?? reason.message})`;
}

function show(value: unknown): string {
  return JSON.stringify(value);
}

interface TestOptions {
  readonly sources: SourceList;
  readonly environment: Environment;
  readonly clock: Clock;
  readonly allowMissingEnv: boolean;
  readonly format: ReportFormat;
  readStdin(): string;
}

const NO_TESTS = "the configuration has no tests";

export async function testConfig(options: TestOptions): Promise<ValidationReport> {
  const { format, clock } = options;
  const invalid = (findings: readonly Finding[]): ValidationReport => validationReport(findings, format, false);
  try {
    const { prepared, close } = openDryConfig(openSources(options.sources, options.readStdin).read(), options);
    try {
      if (!prepared.ok) return invalid(prepared.findings ?? []);
      const { tests, topology } = prepared;
      if (tests.length === 0) return invalid([errorOf(new ConfigError(undefined, "", NO_TESTS))]);
      return testReport(await runConfigTests(tests, topology, dryRunnerOf(prepared, clock), clock), format);
    } finally {
      close();
    }
  } catch (error) {
    // A source path could not be read.
    if (!(error instanceof ConfigError)) throw error;
    return invalid([errorOf(error)]);
  }
}

function errorOf(problem: ConfigError): Finding {
  return { severity: "error", problem };
}

function testReport(results: readonly TestResult[], format: ReportFormat): ValidationReport {
  const failed = results.filter(({ differences }) => differences.length > 0);
  const code = failed.length === 0 ? 0 : 1;
  const summary = `${results.length - failed.length} of ${results.length} tests passed\n`;
  if (format === "json")
    return { stdout: `${JSON.stringify(testsAsJson(results, failed.length), null, 2)}\n`, stderr: "", code };
  if (format === "github") {
    const annotations = validationReport(
      failed.flatMap(({ differences }) => differences.map(errorOf)),
      "github",
      false,
    );
    return { stdout: failed.length === 0 ? summary : annotations.stdout + summary, stderr: "", code };
  }
  const lines = results.map(({ name, differences }) =>
    differences.length === 0
      ? `ok    ${name}\n`
      : `FAIL  ${name}\n${differences.map((one) => `      ${one.toLine()}\n`).join("")}`,
  );
  return { stdout: lines.join("") + summary, stderr: "", code };
}

function testsAsJson(results: readonly TestResult[], failed: number) {
  return {
    passed: results.length - failed,
    failed,
    tests: results.map(({ name, differences, report }) => ({
      name,
      ok: differences.length === 0,
      differences: differences.map(({ position, message }) => ({ ...position, message })),
      report: report ?? null,
    })),
  };
}

/** Dry-runs a request against the running configuration, which is compiled again from its sources. */
export async function whatIf(
  question: WhatIf,
  sources: readonly SourceText[],
  options: DryConfigOptions,
): Promise<DryReport> {
  const { prepared, close } = openDryConfig(sources, options);
  try {
    // A file that the configuration refers to may have changed since it was loaded.
    if (!prepared.ok) throw new Error(`the configuration cannot be loaded again: ${prepared.problems[0] ?? ""}`);
    return await dryRunnerOf(prepared, options.clock).run(dryRequestOf(question.request, question.given), {
      repeat: question.repeat,
    });
  } finally {
    close();
  }
}
