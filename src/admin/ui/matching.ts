/**
 * `/ui/api/matching` evaluates a CEL expression for many recent requests in one call, for the filter of the request
 * table. The response lists the requests that match, and the reason for each request that cannot be evaluated.
 */
import { z } from "zod";
import { type AdminEndpoint, jsonResponse, textResponse } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

const MAX_IDS = 200;

const questionSchema = z.strictObject({ expression: z.string(), ids: z.array(z.string()).max(MAX_IDS) });

export function matchingEndpoint(endpoints: () => readonly AdminEndpoint[]): AdminEndpoint {
  return {
    path: "/ui/api/matching",
    doc: "POST: filters recent requests by an expression.",
    async POST(request) {
      const parsed = questionSchema.safeParse(parseJson(await request.body()));
      if (!parsed.success) return textResponse(400, `${z.prettifyError(parsed.error)}\n`);
      const evaluate = endpoints().find(({ path }) => path === ADMIN_PATHS.cel)?.POST;
      if (!evaluate) return textResponse(404, "not found\n");
      const matching: string[] = [];
      const errors: [id: string, message: string][] = [];
      for (const requestId of parsed.data.ids) {
        const question = Buffer.from(JSON.stringify({ expression: parsed.data.expression, requestId }));
        const response = await evaluate({ ...request, path: ADMIN_PATHS.cel, body: async () => question });
        const body =
          "body" in response ? (parseJson(Buffer.from(response.body)) as { value?: unknown; error?: string }) : {};
        if (response.status === 400)
          return jsonResponse({ matching: [], errors: [], error: body?.error ?? "not a valid expression" });
        if (response.status !== 200) errors.push([requestId, "the request is no longer in memory"]);
        else if (body?.error !== undefined) errors.push([requestId, body.error]);
        else if (body?.value === true) matching.push(requestId);
        else if (body?.value !== false) errors.push([requestId, "the result is not a bool"]);
      }
      return jsonResponse({ matching, errors });
    },
  };
}

function parseJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch {
    return undefined;
  }
}
