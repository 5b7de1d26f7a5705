/**
 * Opens the audit file and creates the audit of requests. With several threads, the main thread owns the file and the
 * worker threads send it their lines, so that one file has all records in one order.
 */
import { resolve } from "node:path";
import type { ProcessSettings } from "../config/prepare.ts";
import { type Audit, auditExportProblem, createAudit } from "../record/audit.ts";
import { openRotatingFile } from "../record/log/log-output.ts";
import type { Telemetry } from "../record/telemetry/telemetry.ts";
import type { Services } from "./services.ts";
import { StartError } from "./start-error.ts";

export interface AuditFile {
  write(line: string): void;
  isWritable(): boolean;
}

export interface OpenAuditFile extends AuditFile {
  /** Contains 1 while the file cannot be written. Worker threads read it. */
  readonly failing: SharedArrayBuffer;
  close(): Promise<void>;
}

/** Returns undefined unless `config.audit.file` is set. */
export function openAuditFile(
  { clock, logger, metrics }: Services,
  { process: { audit: settings }, folder }: ProcessSettings,
): OpenAuditFile | undefined {
  if (settings === undefined) return undefined;
  const dropped = metrics
    .counter("gateway_audit_dropped_total", "Audit records that were lost because the file could not be written.")
    .labels();
  dropped.add(0);
  const { file, required } = settings;
  if (file === undefined) return undefined;
  const auditLogger = logger.for("audit");
  const failing = new SharedArrayBuffer(4);
  const state = new Int32Array(failing);
  const opened = openRotatingFile({
    ...file,
    path: resolve(folder, file.path),
    clock,
    dropped: (lines) => dropped.add(lines),
    changed(failure) {
      Atomics.store(state, 0, failure === undefined ? 0 : 1);
      if (failure === undefined) auditLogger.info("audit file can be written again");
      else
        auditLogger.error("audit file cannot be written", {
          file: file.path,
          reason: failure.message,
          calls: required ? "rejected until it can" : "go on",
        });
    },
  });
  return { write: opened.write, isWritable: isWritable(failing), failing, close: opened.close };
}

/** Implements the audit file in a worker thread. `send` sends a line to the main thread. */
export function remoteAuditFile(failing: SharedArrayBuffer, send: (line: string) => void): AuditFile {
  return { write: send, isWritable: isWritable(failing) };
}

function isWritable(failing: SharedArrayBuffer): () => boolean {
  const state = new Int32Array(failing);
  return () => Atomics.load(state, 0) === 0;
}

/** Returns undefined unless `config.audit` is set. */
export function createConfiguredAudit(
  { clock, metrics }: Services,
  { process: { audit: settings }, redaction }: ProcessSettings,
  file: AuditFile | undefined,
  log: Telemetry["log"],
): Audit | undefined {
  if (settings === undefined) return undefined;
  const made = metrics.counter("gateway_audit_records_total", "Audit records that were made.").labels();
  return createAudit(settings, {
    clock,
    redaction,
    isWritable: () => file?.isWritable() ?? true,
    record(fields, { records: { spans } }) {
      made.add();
      file?.write(`${JSON.stringify(fields)}\n`);
      if (settings.otlp === true) log?.({ level: "info", name: "audit", epochMs: clock.now(), fields, spans });
    },
  });
}

export function checkAuditExport({ process: { audit, telemetry } }: ProcessSettings): void {
  const problem = auditExportProblem(audit, telemetry?.otlp?.signals);
  if (problem !== undefined) throw new StartError([`config.audit.otlp: ${problem}`]);
}
