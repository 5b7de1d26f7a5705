/**
 * `gwctl validate -f <config>` prints every problem of a configuration, like `gateway --validate-only`.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import { formatOf, isData, printData } from "../terminal/output.ts";
import { CliError, type Terminal } from "../terminal/terminal.ts";

const REPORT = peerInput("gateway/validation-report");

export interface ValidateFlags {
  readonly file: readonly string[];
  readonly strict?: boolean;
  readonly allowMissingEnv?: boolean;
  readonly output?: string;
}

const VALIDATE_FORMATS = ["text", "json", "yaml", "github"] as const;

export async function validate(flags: ValidateFlags, terminal: Terminal): Promise<void> {
  const format = formatOf(flags.output, VALIDATE_FORMATS);
  const { validateOnly, validationReport } = await import("../../app/validate.ts");
  const findings = validateOnly({
    sources: flags.file,
    environment: terminal.environment,
    clock: terminal.clock,
    allowMissingEnv: flags.allowMissingEnv ?? false,
    readStdin: terminal.readStdin,
  });
  const { stdout, stderr, code } = validationReport(findings, isData(format) ? "json" : format, flags.strict ?? false);
  if (isData(format)) printData(readJson(REPORT, stdout), format, terminal);
  else {
    terminal.out(stdout);
    terminal.err(stderr);
  }
  if (code !== 0) throw new CliError("the configuration is invalid");
}
