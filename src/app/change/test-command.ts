/**
 * What `gateway --test` prints: one line per test for people, JSON for programs, annotations for a GitHub workflow. The exit
 * code is 0 only if the configuration is valid, has tests, and all of them pass.
 */
import { openSources, type SourceList } from "../../config/load/sources.ts";
import type { Finding } from "../../config/prepare.ts";
import type { Environment } from "../../config/text/env.ts";
import { ConfigError } from "../../core/config-error.ts";
import type { Clock } from "../../lib/process/clock.ts";
import { createDryRunner } from "../../pipeline/dry-run/dry-run.ts";
import { type ReportFormat, type ValidationReport, validationReport } from "../validation-report.ts";
import { runConfigTests, type TestResult } from "./config-tests.ts";
import { openDryConfig } from "./dry-config.ts";

export interface TestOptions {
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
      const { tests, topology, redaction } = prepared;
      if (tests.length === 0) return invalid([errorOf(new ConfigError(undefined, "", NO_TESTS))]);
      return testReport(await runConfigTests(tests, createDryRunner(topology, redaction, clock)), format);
    } finally {
      close();
    }
  } catch (error) {
    // A path that cannot be read.
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
    return { stdout: `${JSON.stringify(asJson(results, failed.length), null, 2)}\n`, stderr: "", code };
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

function asJson(results: readonly TestResult[], failed: number) {
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
