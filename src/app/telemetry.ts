/**
 * OpenTelemetry where it is configured: only then its packages are loaded.
 */
import { hostname } from "node:os";
import type { OtlpSettings } from "../telemetry/settings.ts";
import type { Telemetry, TelemetryEnv } from "../telemetry/telemetry.ts";
import type { Services } from "./services.ts";

/** A collector that does not answer must not hold up the end for long. */
const CLOSE_LIMIT_MS = 2_000;

export async function loadTelemetry(
  settings: OtlpSettings | undefined,
  { clock, logger, metrics }: Services,
  rest: Pick<TelemetryEnv, "redaction" | "ids" | "random" | "version">,
): Promise<(Omit<Telemetry, "close"> & { close(): Promise<void> }) | undefined> {
  if (settings === undefined) return undefined;
  const { openTelemetry } = await import("../telemetry/telemetry.ts");
  const env = { clock, metrics, logger: logger.for("telemetry"), hostName: hostname(), ...rest };
  const telemetry = openTelemetry(settings, env);
  return { ...telemetry, close: () => telemetry.close(CLOSE_LIMIT_MS) };
}
