/**
 * What is known of requests and of the process from the start: metrics, OpenTelemetry, audit, records, the heap.
 */

import type { HeapPressure } from "../../base/heap-pressure.ts";
import { createIdSource, type IdSource } from "../../base/ids.ts";
import { registerProcessMetrics } from "../../observe/log/process-metrics.ts";
import { openAudit } from "../audit.ts";
import { watchHeapLoudly } from "../capacity.ts";
import type { Loaded } from "../config-loader.ts";
import { createRequestRecords, type RequestRecords } from "../request-records.ts";
import type { Services } from "../services.ts";
import type { Shutdown } from "../shutdown.ts";
import { loadTelemetry } from "../telemetry.ts";
import type { AppOptions } from "./app-options.ts";
import { keepHistory } from "./keep-history.ts";

export interface Measuring {
  readonly ids: IdSource;
  readonly records: RequestRecords;
  readonly heap: HeapPressure;
  random(): number;
}

export async function startMeasuring(
  { version, random = Math.random, heapSize }: AppOptions,
  services: Services,
  shutdown: Shutdown,
  config: Loaded,
): Promise<Measuring> {
  const { clock, metrics } = services;
  const { process: settings, redaction } = config;
  const ids = createIdSource();
  const telemetry = await loadTelemetry(settings.telemetry?.otlp, services, { redaction, ids, random, version });
  if (telemetry !== undefined) shutdown.at("measuring", telemetry.close);
  shutdown.at("measuring", registerProcessMetrics(metrics, { version, startedAtMs: clock.now() }));
  const audit = openAudit(settings, services, redaction, telemetry?.log);
  if (audit !== undefined) shutdown.at("measuring", audit.close);
  const records = createRequestRecords(services, config, telemetry, audit);
  keepHistory(services, records.history, shutdown);
  const heap = watchHeapLoudly(services, heapSize);
  shutdown.at("measuring", heap.stop);
  return { ids, random, records, heap };
}
