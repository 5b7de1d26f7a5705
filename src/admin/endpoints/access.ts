/**
 * `POST /debug/access` reports which routes, MCP tools, and models each known principal may use, evaluated with the
 * policies of the running configuration and optionally of a new one.
 */
import { z } from "zod";
import { peerInput } from "../../base/peer-inputs.ts";
import { runInSlices, type Steps } from "../../base/sliced-work.ts";
import type { SourceText } from "../../config/load/load.ts";
import { accessItem } from "../../config/schema/tests-schema.ts";
import type { Topology } from "../../core/topology.ts";
import { tryReadJson } from "../../json/read-json.ts";
import { safeJson } from "../../json/safe-json.ts";
import type { ClaimSet, NamedTool } from "../../pipeline/dry-run/access-review.ts";
import {
  type AdminEndpoint,
  type AdminRequest,
  type AdminResponse,
  type AdminSink,
  textResponse,
} from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";
import { inspectedBackends, inspectedTargets } from "./mcp.ts";

const BODY = peerInput("admin-client/configuration-edit");

const USAGE =
  'send JSON: {"principals": [{"name", "claims"}], "items": ["tool:server/name"], "sources": [{"file", "text"}]}';

const question = z.strictObject({
  principals: z
    .array(z.strictObject({ name: z.string().min(1), claims: z.record(z.string(), z.unknown()) }))
    .max(10_000)
    .optional(),
  items: z.array(accessItem).min(1).max(10_000).optional(),
  sources: z
    .array(z.strictObject({ file: z.string().min(1), text: z.string() }))
    .min(1)
    .optional(),
});

export interface AccessQuestion {
  readonly claimSets: readonly ClaimSet[];
  readonly items: readonly string[] | undefined;
  readonly after: readonly SourceText[] | undefined;
  readonly tools: readonly NamedTool[];
}

export type AccessResult =
  /** Reviews are pieces of JSON. */
  | { readonly ok: true; readonly review: readonly string[]; readonly after?: readonly string[] }
  | { readonly ok: false; readonly problems: readonly string[] };

export interface AccessParts {
  topology(): Topology;
  review(
    question: AccessQuestion,
    requestHistory: readonly Uint8Array[] | undefined,
    clientGone: AbortSignal | undefined,
  ): Promise<AccessResult>;
  isBusy(error: unknown): boolean;
}

export function accessEndpoint(parts: AccessParts): AdminEndpoint {
  return {
    path: ADMIN_PATHS.access,
    doc: 'POST {"principals", "items", "sources"}: which routes, tools and models each principal may use. Nothing is sent.',
    input: BODY,
    async POST(request) {
      const parsed = question.safeParse(tryReadJson(BODY, await request.body()));
      if (!parsed.success) {
        const [issue] = parsed.error.issues;
        return textResponse(400, `${issue?.path.join(".") ?? ""}: ${issue?.message ?? ""}\n${USAGE}\n`);
      }
      const { principals = [], items, sources } = parsed.data;
      const listed = items === undefined ? await listTools(parts.topology(), request) : { tools: [], problems: [] };
      try {
        const asked = { claimSets: principals, items, after: sources, tools: listed.tools };
        const found = await parts.review(asked, request.requestHistory, request.left);
        if (!found.ok) return textResponse(422, `${found.problems.join("\n")}\n`);
        const { review, after } = found;
        return streamedResponse([
          '{"review":',
          ...review,
          ...(after === undefined ? [] : [',"after":', ...after]),
          `,"problems":${safeJson(listed.problems)}}\n`,
        ]);
      } catch (error) {
        return textResponse(parts.isBusy(error) ? 409 : 500, `${(error as Error).message}\n`);
      }
    },
  };
}

/** Redacting and sending a large review at once would delay requests. */
function streamedResponse(pieces: readonly string[]): AdminResponse {
  return {
    status: 200,
    type: "application/json",
    stream(sink) {
      let isClosed = false;
      sink.onClose(() => {
        isClosed = true;
      });
      void runInSlices(written(sink, pieces), () => isClosed);
    },
  };
}

function* written(sink: AdminSink, pieces: readonly string[]): Steps<void> {
  for (const piece of pieces) {
    sink.write(piece);
    yield;
  }
  sink.end();
}

async function listTools(
  topology: Topology,
  { withheld }: AdminRequest,
): Promise<{ readonly tools: readonly NamedTool[]; readonly problems: readonly string[] }> {
  const lists = await Promise.all(
    inspectedBackends(topology).map(async (backend) =>
      (await inspectedTargets(backend, withheld)).map((target) => ({ backend: backend.attributes.name, ...target })),
    ),
  );
  const targets = lists.flat();
  return {
    tools: targets.flatMap(({ backend, target, tools }) =>
      tools.flatMap(({ shown }) => (shown === null ? [] : [{ backend, target, tool: shown }])),
    ),
    problems: targets.flatMap(({ target, error }) =>
      error === undefined ? [] : [`the tools of ${target} are unknown: ${error}`],
    ),
  };
}
