/**
 * What `gateway --validate-only` prints, for people, for programs, and as annotations of a GitHub workflow.
 */
import type { Finding } from "../config/prepare.ts";

export const REPORT_FORMATS = ["text", "json", "github"] as const;
export type ReportFormat = (typeof REPORT_FORMATS)[number];

export interface ValidationReport {
  readonly stdout: string;
  readonly stderr: string;
  readonly code: 0 | 1;
}

/** With `strict`, a warning is enough to fail. */
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

/** Errors stand alone, as at a start. */
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
