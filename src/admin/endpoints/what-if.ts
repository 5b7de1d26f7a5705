/**
 * `POST /debug/what-if` reports what the running configuration would do with a request, `POST /debug/rehearse`
 * compares a new configuration with the running one on recent requests, and `GET /debug/recording` returns the
 * recorded requests.
 */
import { z } from "zod";
import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { SourceText } from "../../config/load/load.ts";
import { type DescribedRequest, describedRequest } from "../../config/schema/tests-schema.ts";
import type { GivenToken } from "../../core/dry-env.ts";
import { readJson, tryReadJson } from "../../json/read-json.ts";
import type { DryReport } from "../../pipeline/dry-run/dry-report.ts";
import { type RequestHistory, recordedLines } from "../../record/recorded-request.ts";
import { type AdminEndpoint, type AdminSink, jsonResponse, textResponse } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

const BODY = peerInput("admin-client/body");
const SOURCES = peerInput("admin-client/configuration-edit");

const USAGE = 'send JSON: {"request": {"method", "url", …}, "claims" | "token", "repeat"}';
const MAX_REPEATS = 1_000;

const question = z.strictObject({
  request: describedRequest,
  claims: z.record(z.string(), z.unknown()).optional(),
  token: z.string().min(1).optional(),
  repeat: z.int().min(1).max(MAX_REPEATS).optional(),
});

export interface WhatIf {
  readonly request: DescribedRequest;
  readonly given: GivenToken | undefined;
  readonly repeat: number;
}

export function whatIfEndpoint(evaluate: (question: WhatIf) => Promise<DryReport>): AdminEndpoint {
  return {
    path: ADMIN_PATHS.whatIf,
    doc: 'POST {"request", "claims" | "token", "repeat"}: route, policies, limits and backend of a request that is not sent.',
    async POST(request) {
      const parsed = question.safeParse(tryReadJson(BODY, await request.body()));
      if (!parsed.success) {
        const [issue] = parsed.error.issues;
        return textResponse(400, `${issue?.path.join(".") ?? ""}: ${issue?.message ?? ""}\n${USAGE}\n`);
      }
      const { claims, token, repeat = 1 } = parsed.data;
      if (claims !== undefined && token !== undefined) return textResponse(400, `send claims or a token\n${USAGE}\n`);
      const given = claims ? { claims } : token === undefined ? undefined : { token };
      try {
        return jsonResponse(await evaluate({ request: parsed.data.request, given, repeat }));
      } catch (error) {
        return textResponse(400, `${(error as Error).message}\n`);
      }
    },
  };
}

const written = z.strictObject({
  sources: z.array(z.strictObject({ file: z.string().min(1), text: z.string() })).min(1),
});

export type RehearseResult =
  | { readonly ok: true; readonly report: object }
  | { readonly ok: false; readonly problems: readonly string[] };

/** `rehearse` rejects if another rehearsal is running. `isBusy` recognizes that error. */
export interface RehearseParts {
  rehearse(
    after: readonly SourceText[],
    requestHistory: readonly Uint8Array[] | undefined,
    left: AbortSignal | undefined,
  ): Promise<RehearseResult>;
  isBusy(error: unknown): boolean;
}

export function rehearseEndpoint(parts: RehearseParts): AdminEndpoint {
  return {
    path: ADMIN_PATHS.rehearse,
    doc: "POST a configuration: what it would change for the last 10,000 requests. Nothing is sent.",
    input: SOURCES,
    async POST(request) {
      const text = (await request.body()).toString();
      if (text.trim() === "") return textResponse(400, "send the text of a configuration\n");
      try {
        const found = await parts.rehearse(sourcesIn(text), request.requestHistory, request.left);
        if (found.ok) return jsonResponse(found.report);
        return textResponse(422, `${found.problems.join("\n")}\n`);
      } catch (error) {
        return textResponse(parts.isBusy(error) ? 409 : 500, `${(error as Error).message}\n`);
      }
    },
  };
}

function sourcesIn(text: string): readonly SourceText[] {
  if (text.startsWith("{")) {
    try {
      const parsed = written.safeParse(readJson(SOURCES, text));
      if (parsed.success) return parsed.data.sources;
    } catch {
      // The body is YAML that starts like JSON.
    }
  }
  return [{ file: "<rehearsed>", text }];
}

const HEARTBEAT_MS = 5_000;
const JSON_LINES = "application/jsonl";
const MAX_UNREAD_BYTES = 4 * 1024 * 1024;

export function recordingEndpoint(requestHistory: RequestHistory, clock: Clock): AdminEndpoint {
  return {
    path: ADMIN_PATHS.recording,
    doc: "The last 10,000 requests without bodies and credentials, as JSON lines; `follow=true` for those to come.",
    GET({ query }) {
      const follow = query.get("follow") ?? "false";
      if (follow === "true")
        return { status: 200, type: JSON_LINES, stream: (sink) => followed(requestHistory, clock, sink) };
      if (follow !== "false") return textResponse(400, "follow is true or false\n");
      return { status: 200, type: JSON_LINES, body: recordedLines(requestHistory) };
    },
  };
}

/** Writes an empty line when the recording has started, and further empty lines as heartbeats. */
function followed(requestHistory: RequestHistory, clock: Clock, sink: AdminSink): void {
  sink.write("\n");
  const timer = clock.every(HEARTBEAT_MS, () => void sink.write("\n"));
  const withdraw = requestHistory.follow((line) => {
    if (sink.bufferedBytes() < MAX_UNREAD_BYTES) sink.write(`${line}\n`);
  });
  sink.onClose(() => {
    timer.cancel();
    withdraw();
  });
}
