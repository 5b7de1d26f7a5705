/**
 * Connects the outputs that observe requests, such as metrics, OpenTelemetry, and the access log.
 */

import { hostname } from "node:os";
import { resolve } from "node:path";
import type { HeapPressure } from "../base/heap-pressure.ts";
import { createIdSource, type IdSource } from "../base/ids.ts";
import type { ProcessSettings } from "../config/prepare.ts";
import { type History, openHistory } from "../record/history/history.ts";
import type { RowValues } from "../record/history/history-row.ts";
import { createHistoryRecorder, type HistoryRecorder } from "../record/history-record.ts";
import type { MetricFamily } from "../record/log/metrics.ts";
import { registerProcessMetrics, registerThreadMetrics } from "../record/log/process-metrics.ts";
import { createRequestRecords, type RequestRecords } from "../record/request-records.ts";
import type { OtlpSettings, Signal } from "../record/telemetry/settings.ts";
import type { Telemetry, TelemetryEnv } from "../record/telemetry/telemetry.ts";
import { HISTORY_SECONDS, type TrafficHistory } from "../record/traffic.ts";
import { processEntries } from "../store/owned-store.ts";
import type { Store } from "../store/store.ts";
import type { AppOptions } from "./app-options.ts";
import { checkAuditExport, createConfiguredAudit, type OpenAuditFile, openAuditFile } from "./audit.ts";
import { watchHeapAndLog } from "./capacity.ts";
import type { Services } from "./services.ts";
import type { Shutdown } from "./shutdown.ts";
import { StartError } from "./start-error.ts";

export interface Measuring {
  readonly ids: IdSource;
  readonly records: RequestRecords;
  readonly heap: HeapPressure;
  /** The value is undefined unless `config.history` is set. */
  readonly historyDatabase: History | undefined;
  /** The value is undefined unless `config.audit.file` is set. */
  readonly auditFile: OpenAuditFile | undefined;
  /** Identifies this process in exported data, for all of its threads. */
  readonly instanceId: string;
  random(): number;
}

const INSTANCE_ID_BYTES = 8;

export interface MeasuredThreads {
  /** False if worker threads serve, and not this thread. */
  readonly isServing: boolean;
  /** Returns the metrics of all threads. */
  collectMetrics(): Promise<readonly MetricFamily[]>;
}

export async function startMeasuring(
  { version, random = Math.random, heapSize }: AppOptions,
  services: Services,
  shutdown: Shutdown,
  config: ProcessSettings,
  { isServing, collectMetrics }: MeasuredThreads,
): Promise<Measuring> {
  const { clock, metrics } = services;
  const { process: settings, redaction } = config;
  checkAuditExport(config);
  const ids = createIdSource();
  const instanceId = ids.hex(INSTANCE_ID_BYTES);
  const otlp = isServing ? settings.telemetry?.otlp : onlySignals(settings.telemetry?.otlp, ["metrics"]);
  const telemetry = await loadTelemetry(otlp, services, {
    redaction,
    ids,
    random,
    version,
    instanceId,
    collectMetrics,
  });
  if (telemetry !== undefined) shutdown.at("measuring", telemetry.close);
  registerProcessMetrics(metrics, { version, startedAtMs: clock.now() });
  shutdown.at("measuring", registerThreadMetrics(metrics, "main"));
  const auditFile = openAuditFile(services, config);
  if (auditFile !== undefined) shutdown.at("measuring", auditFile.close);
  const audit = isServing ? createConfiguredAudit(services, config, auditFile, telemetry?.log) : undefined;
  const historyDatabase = openHistoryDatabase(services, config);
  if (historyDatabase !== undefined) shutdown.at("measuring", historyDatabase.close);
  const recorder = historyDatabase && historyRecorder(config, historyDatabase.add);
  const records = createRequestRecords(services, config, telemetry, audit, { recorder });
  keepHistory(services, config, records.history, shutdown);
  const heap = watchHeapAndLog(services, heapSize);
  shutdown.at("measuring", heap.stop);
  return { ids, random, records, heap, historyDatabase, auditFile, instanceId };
}

function openHistoryDatabase({ clock, logger, metrics }: Services, config: ProcessSettings): History | undefined {
  const { history: settings } = config.process;
  if (settings === undefined) return undefined;
  const { postgres, keepRows, keepUsage, maxQueueRows, maxSpoolBytes } = settings;
  const folder = resolve(config.folder, settings.folder);
  const retention = { rowsMs: keepRows, usageMs: keepUsage };
  return openHistory(
    { folder, postgres, retention, maxQueueRows, maxSpoolBytes },
    { clock, metrics, logger: logger.for("history"), redact: config.redaction.text },
  );
}

export async function checkHistory(history: History | undefined, config: ProcessSettings): Promise<void> {
  const refusal = await history?.started;
  if (refusal !== undefined) throw new StartError([`${config.places.history}: ${refusal}`]);
}

export function historyRecorder(
  { process, redaction }: ProcessSettings,
  add: (row: RowValues) => void,
): HistoryRecorder | undefined {
  return process.history && createHistoryRecorder(redaction, process.history.team, add);
}

/** An unresponsive collector must not delay the shutdown. */
const CLOSE_LIMIT_MS = 2_000;

export async function loadTelemetry(
  settings: OtlpSettings | undefined,
  { clock, logger, metrics }: Services,
  rest: Pick<TelemetryEnv, "redaction" | "ids" | "random" | "version" | "instanceId" | "collectMetrics">,
): Promise<(Omit<Telemetry, "close"> & { close(): Promise<void> }) | undefined> {
  if (settings === undefined) return undefined;
  const { openTelemetry } = await import("../record/telemetry/telemetry.ts");
  const env = { clock, metrics, logger: logger.for("telemetry"), hostName: hostname(), ...rest };
  const telemetry = openTelemetry(settings, env);
  return { ...telemetry, close: () => telemetry.close(CLOSE_LIMIT_MS) };
}

/** With several threads, the main thread exports metrics, and each worker thread exports its spans and log records. */
export function onlySignals(settings: OtlpSettings | undefined, signals: readonly Signal[]): OtlpSettings | undefined {
  return settings && { ...settings, signals: settings.signals.filter((signal) => signals.includes(signal)) };
}

const SAVE_MS = 60_000;

export function keepHistory(
  { clock, store, logger }: Pick<Services, "clock" | "logger"> & { readonly store: Store },
  { process: { adminAddr = "" }, folder }: ProcessSettings,
  history: TrafficHistory,
  shutdown: Shutdown,
  thread = 0,
): void {
  if (store.kind === "memory") return;
  const kept = processEntries(store, "history");
  // Replicas can share a store, also those of one host, which have admin addresses or folders of their own.
  const key = `${hostname()}.${adminAddr === "off" ? folder : adminAddr}.${thread}`;
  let isRead = false;
  let isReported = false;
  /** Holds the last saved text, so that unchanged content is not written again. */
  let saved = history.packed();

  const failed = (error: Error): void => {
    if (!isReported) logger.for("app").warn("traffic history could not be saved", { reason: error.message });
    isReported = true;
  };
  const read = kept.get(key).then((text) => {
    if (text !== undefined) history.unpack(text);
    isRead = true;
  }, failed);

  async function save(): Promise<void> {
    await read;
    try {
      // If the read at the start failed, the saved history is merged before it is overwritten.
      if (!isRead) history.unpack((await kept.get(key)) ?? "[]");
      isRead = true;
      const packed = history.packed();
      if (packed === saved) return;
      await kept.set(key, packed, { expiresAtMs: clock.now() + HISTORY_SECONDS * 1000 });
      saved = packed;
      isReported = false;
    } catch (error) {
      failed(error as Error);
    }
  }

  const timer = clock.every(SAVE_MS, () => void save());
  shutdown.at("outgoing", () => {
    timer.cancel();
    return save();
  });
}
