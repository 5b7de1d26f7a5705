/**
 * `POST /debug/what-if`: what would become of a request, without sending it. The answer is the report of a dry run of the
 * configuration that serves.
 */
import { z } from "zod";
import { type DescribedRequest, describedRequest } from "../../config/schema/tests-schema.ts";
import type { GivenToken } from "../../core/policy.ts";
import type { DryReport } from "../../pipeline/dry-run/dry-report.ts";
import { type AdminEndpoint, type AdminRequest, jsonAnswer, textAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

const USAGE = 'send JSON: {"request": {"method", "url", …}, "claims" | "token", "repeat"}';
/** The dry run works on the thread that serves. */
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

export function whatIfEndpoint(ask: (question: WhatIf) => Promise<DryReport>): AdminEndpoint {
  return {
    path: ADMIN_PATHS.whatIf,
    doc: 'POST {"request", "claims" | "token", "repeat"}: route, policies, limits and backend of a request that is not sent.',
    async POST(request) {
      const parsed = question.safeParse(await readJson(request));
      if (!parsed.success) {
        const [issue] = parsed.error.issues;
        return textAnswer(400, `${issue?.path.join(".") ?? ""}: ${issue?.message ?? ""}\n${USAGE}\n`);
      }
      const { claims, token, repeat = 1 } = parsed.data;
      if (claims !== undefined && token !== undefined) return textAnswer(400, `send claims or a token\n${USAGE}\n`);
      const given = claims ? { claims } : token === undefined ? undefined : { token };
      try {
        return jsonAnswer(await ask({ request: parsed.data.request, given, repeat }));
      } catch (error) {
        // A URL that chooses no listener.
        return textAnswer(400, `${(error as Error).message}\n`);
      }
    },
  };
}

async function readJson(request: AdminRequest): Promise<unknown> {
  try {
    return JSON.parse((await request.body()).toString());
  } catch {
    return undefined;
  }
}
