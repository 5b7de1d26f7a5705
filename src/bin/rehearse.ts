/**
 * Implements `gateway --rehearse new.yaml`, which reports what a new configuration would change for the recent requests
 * of a running gateway (`--admin`) or of a recording (`--recording`).
 */
import { readFileSync } from "node:fs";
import { request } from "node:http";
import { resolve } from "node:path";
import { parseAdminAddress } from "../admin/server/address.ts";
import { ADMIN_PATHS } from "../admin/server/paths.ts";
import { parseRecording } from "../app/rehearsal/recording-file.ts";
import { type RehearsalReport, rehearsalCode, rehearsalText } from "../app/rehearsal/rehearsal-report.ts";
import { rehearse } from "../app/rehearsal/rehearse.ts";
import { keepAwake, systemClock } from "../base/clock.ts";
import { peerInput } from "../base/peer-inputs.ts";
import { print } from "../base/print.ts";
import { openSources, type SourceText, STDIN } from "../config/load/load.ts";
import { processEnvironment } from "../config/text/env.ts";
import { ConfigError } from "../core/config-error.ts";
import { readJson } from "../json/read-json.ts";
import { connectionTo } from "./health.ts";

const REPORT = peerInput("gateway/rehearsal-report");

/** Exceeds the gateway's own limit for a rehearsal, which is one minute. */
const TIMEOUT_MS = 90_000;

export interface RehearseFlags {
  readonly after: readonly string[];
  /** Names the configuration to compare with. It is used only with a recording. */
  readonly before: readonly string[] | undefined;
  readonly admin: string | undefined;
  readonly recording: string | undefined;
  readonly strict: boolean;
  readonly format: "text" | "json";
  readonly allowMissingEnv: boolean;
  readStdin(): string;
}

export async function runRehearsal(flags: RehearseFlags): Promise<number> {
  const awake = keepAwake();
  try {
    const report =
      flags.recording === undefined ? await rehearseRunning(flags) : await rehearseRecording(flags, flags.recording);
    print(1, flags.format === "json" ? `${JSON.stringify(report, null, 2)}\n` : rehearsalText(report));
    return rehearsalCode(report, flags.strict);
  } catch (error) {
    print(2, `${error instanceof ConfigError ? error.toLine() : (error as Error).message}\n`);
    return 2;
  } finally {
    awake.cancel();
  }
}

async function rehearseRecording(flags: RehearseFlags, file: string): Promise<RehearsalReport> {
  const { after, before, allowMissingEnv } = flags;
  let requests: ReturnType<typeof parseRecording>;
  try {
    requests = parseRecording(readFileSync(file, "utf8"));
  } catch (error) {
    throw new Error(`${file}: ${(error as Error).message}`);
  }
  const read = (paths: readonly string[]): readonly SourceText[] => openSources(paths, flags.readStdin).read();
  const input = {
    before: before && read(before),
    after: read(after),
    environment: processEnvironment(),
    allowMissingEnv,
  };
  const found = await rehearse(input, requests, systemClock);
  if (!found.ok) throw new Error(found.problems.join("\n"));
  return found.report;
}

async function rehearseRunning({ after, admin, readStdin }: RehearseFlags): Promise<RehearsalReport> {
  const sources = openSources(after, readStdin)
    .read()
    .map(({ file, text }) => ({ file: after.includes(STDIN) && file.startsWith("<") ? file : resolve(file), text }));
  const { status, body } = await post(admin, JSON.stringify({ sources }));
  if (status !== 200) throw new Error(body.trim() === "" ? `the gateway answered ${status}` : body.trim());
  return readJson(REPORT, body) as RehearsalReport;
}

function post(address: string | undefined, body: string): Promise<{ status: number; body: string }> {
  const target = parseAdminAddress(address);
  if (target.kind === "off") throw new Error(`${address} is no address: use ip:port or unix:/path`);
  return new Promise((done, failed) => {
    const why = (error: Error): void =>
      failed(new Error(`no gateway answers at ${address ?? "its default admin address"}: ${error.message}`));
    const options = { ...connectionTo(target), path: ADMIN_PATHS.rehearse, method: "POST", timeout: TIMEOUT_MS };
    const sent = request(options, (answer) => {
      let text = "";
      answer.setEncoding("utf8");
      answer.on("data", (chunk: string) => {
        text += chunk;
      });
      answer.on("end", () => done({ status: answer.statusCode ?? 0, body: text }));
      answer.on("error", why);
    });
    sent.on("timeout", () => sent.destroy(new Error(`nothing within ${TIMEOUT_MS / 1_000} s`)));
    sent.on("error", why);
    sent.end(body);
  });
}
