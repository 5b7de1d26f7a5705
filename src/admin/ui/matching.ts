/**
 * `/ui/api/matching` evaluates a CEL expression for many recent requests in one call, for the filter of the request
 * table. The response lists the requests that match, and the reason for each request that cannot be evaluated.
 */
import { z } from "zod";
import { peerInput } from "../../base/peer-inputs.ts";
import { tryReadJson } from "../../json/read-json.ts";
import { type AdminEndpoint, jsonResponse, textResponse } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

const BODY = peerInput("admin-client/body");
const EVALUATED = peerInput("thread/admin-response");

const MAX_IDS = 200;

const questionSchema = z.strictObject({ expression: z.string(), ids: z.array(z.string()).max(MAX_IDS) });

interface Evaluated {
  readonly results?: readonly { readonly id: string; readonly value?: boolean; readonly error?: string }[];
  readonly error?: string;
}

export function matchingEndpoint(endpoints: () => readonly AdminEndpoint[]): AdminEndpoint {
  return {
    path: "/ui/api/matching",
    doc: "POST: filters recent requests by an expression.",
    async POST(request) {
      const parsed = questionSchema.safeParse(tryReadJson(BODY, await request.body()));
      if (!parsed.success) return textResponse(400, `${z.prettifyError(parsed.error)}\n`);
      const evaluate = endpoints().find(({ path }) => path === ADMIN_PATHS.cel)?.POST;
      if (!evaluate) return textResponse(404, "not found\n");
      const { expression, ids } = parsed.data;
      const question = Buffer.from(JSON.stringify({ expression, requestIds: ids }));
      const response = await evaluate({ ...request, path: ADMIN_PATHS.cel, body: async () => question });
      const { results = [], error } = "body" in response ? (tryReadJson(EVALUATED, response.body) as Evaluated) : {};
      if (response.status !== 200)
        return jsonResponse({ matching: [], errors: [], error: error ?? "not a valid expression" });
      const known = new Map(results.map((result) => [result.id, result]));
      const errors = ids.flatMap((id) => {
        const reason = known.has(id) ? known.get(id)?.error : "the request is no longer in memory";
        return reason === undefined ? [] : [[id, reason]];
      });
      return jsonResponse({ matching: ids.filter((id) => known.get(id)?.value === true), errors });
    },
  };
}
