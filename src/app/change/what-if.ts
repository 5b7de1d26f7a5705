/**
 * What would become of a request under the configuration that serves: it is compiled once more with shut doors, from the
 * texts that it was loaded from, and walked.
 */
import type { WhatIf } from "../../admin/change/what-if.ts";
import type { SourceText } from "../../config/load/load.ts";
import type { DryReport } from "../../pipeline/dry-run/dry-report.ts";
import { createDryRunner } from "../../pipeline/dry-run/dry-run.ts";
import { dryRequestOf } from "./config-tests.ts";
import { type DryConfigOptions, openDryConfig } from "./dry-config.ts";

export async function whatIf(
  question: WhatIf,
  sources: readonly SourceText[],
  options: DryConfigOptions,
): Promise<DryReport> {
  const { prepared, close } = openDryConfig(sources, options);
  try {
    // A file that it names may have changed since.
    if (!prepared.ok) throw new Error(`the configuration cannot be loaded again: ${prepared.problems[0] ?? ""}`);
    const runner = createDryRunner(prepared.topology, prepared.redaction, options.clock);
    return await runner.run(dryRequestOf(question.request, question.given), { repeat: question.repeat });
  } finally {
    close();
  }
}
