/**
 * The audit stream of the process, where `config.audit` asks for it: records go to a file, over OTLP, or both.
 */
import { resolve } from "node:path";
import type { WrittenProcess } from "../config/schema/schema.ts";
import { openRotatingFile } from "../observe/log/rotating-file.ts";
import type { Redaction } from "../observe/trace/redact.ts";
import { type Audit, createAudit } from "../pipeline/records/audit.ts";
import type { Telemetry } from "../telemetry/telemetry.ts";
import type { Services } from "./services.ts";
import { StartError } from "./start-error.ts";

export function openAudit(
  { audit: settings }: Pick<WrittenProcess, "audit">,
  { clock, logger, metrics }: Services,
  redaction: Redaction,
  log: Telemetry["log"],
): (Audit & { close(): Promise<void> }) | undefined {
  if (settings === undefined) return undefined;
  if (settings.otlp === true && log === undefined)
    throw new StartError(["config.audit.otlp: needs `config.telemetry.otlp` with `logs` among its `signals`"]);
  const written = metrics.counter("gateway_audit_records_total", "Audit records that were made.").labels();
  const dropped = metrics
    .counter("gateway_audit_dropped_total", "Audit records that were lost because the file could not be written.")
    .labels();
  dropped.add(0);
  const auditLogger = logger.for("audit");
  const file =
    settings.file &&
    openRotatingFile({
      ...settings.file,
      path: resolve(settings.file.path),
      clock,
      dropped: (lines) => dropped.add(lines),
      changed: (failure) =>
        failure === undefined
          ? auditLogger.info("audit file can be written again")
          : auditLogger.error("audit file cannot be written", {
              file: settings.file?.path,
              reason: failure.message,
              calls: settings.required ? "rejected until it can" : "go on",
            }),
    });
  const audit = createAudit(settings, {
    clock,
    redaction,
    isWritable: () => file?.isWritable ?? true,
    record(fields, { records: { spans } }) {
      written.add();
      file?.write(`${JSON.stringify(fields)}\n`);
      if (settings.otlp === true) log?.({ level: "info", name: "audit", epochMs: clock.now(), fields, spans });
    },
  });
  return { ...audit, close: async () => file?.close() };
}
