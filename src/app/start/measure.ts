/**
 * What is known of requests and of the process from the start: metrics, OpenTelemetry, audit, records, the heap.
 */

import type { HeapPressure } from "../../base/heap-pressure.ts";
import { createIdSource, type IdSource } from "../../base/ids.ts";
import { registerProcessMetrics } from "../../observe/log/process-metrics.ts";
import { openAudit } from "../audit.ts";
import { watchHeapLoudly } from "../capacity.ts";
import type { Loaded } from "../config-loader.ts";
import type { Doors } from "../doors.ts";
import type { Ending } from "../ending.ts";
import { createRequestRecords, type RequestRecords } from "../request-records.ts";
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
  doors: Doors,
  ending: Ending,
  config: Loaded,
): Promise<Measuring> {
  const { clock, metrics } = doors;
  const { process: settings, redaction } = config;
  const ids = createIdSource();
  const telemetry = await loadTelemetry(settings.telemetry?.otlp, doors, { redaction, ids, random, version });
  if (telemetry !== undefined) ending.at("measuring", telemetry.close);
  ending.at("measuring", registerProcessMetrics(metrics, { version, startedAtMs: clock.now() }));
  const audit = openAudit(settings, doors, redaction, telemetry?.log);
  if (audit !== undefined) ending.at("measuring", audit.close);
  const records = createRequestRecords(doors, config, telemetry, audit);
  keepHistory(doors, records.history, ending);
  const heap = watchHeapLoudly(doors, heapSize);
  ending.at("measuring", heap.stop);
  return { ids, random, records, heap };
}
