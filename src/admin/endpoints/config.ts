/**
 * `POST /debug/cel` evaluates an expression on a recent request, or on attributes given as JSON, and shows each clause
 * with its value. Credentials are redacted as in the trace. `/config_dump` returns the loaded configuration (spec 4.2).
 */

import { runInSlices } from "../../base/sliced-work.ts";
import { compileExpression, type Expression, ExpressionError } from "../../cel/expression.ts";
import { type AttributeSource, plainAttributes } from "../../cel/values/activation.ts";
import { celHeaders } from "../../cel/values/headers.ts";
import { safeJsonInSteps } from "../../json/safe-json.ts";
import type { JsonObject } from "../../observe/trace/events.ts";
import type { RecentRequests } from "../../pipeline/records/recent-requests.ts";
import {
  type AdminEndpoint,
  type AdminRequest,
  type AdminResponse,
  jsonResponse,
  textResponse,
} from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

const USAGE = 'send JSON: {"expression": "<CEL>", "requestId": "<id>"} or {"expression": "<CEL>", "attributes": {…}}\n';

export function celEndpoint(recent: RecentRequests): AdminEndpoint {
  return {
    path: ADMIN_PATHS.cel,
    doc: 'POST {"expression", "requestId" | "attributes"}: evaluates the expression, part by part.',
    async POST(request) {
      const query = await readQuery(request);
      if (query === undefined) return textResponse(400, USAGE);
      let attributes: JsonObject = query.attributes ?? {};
      if (query.requestId !== undefined) {
        const found = recent.find(query.requestId)[0];
        if (!found) return textResponse(404, `no request ${JSON.stringify(query.requestId)} among the recent ones\n`);
        attributes = {
          ...found.requestState,
          proxy: {
            listener: { name: found.listener },
            ...(found.route === null ? {} : { route: { name: found.route } }),
          },
          ...(found.status === null ? {} : { response: { code: found.status } }),
        };
      }
      return evaluate(query.expression, plainAttributes(withHeaderViews(attributes)));
    },
  };
}

interface Question {
  readonly expression: string;
  readonly requestId?: string;
  readonly attributes?: JsonObject;
}

async function readQuery(request: AdminRequest): Promise<Question | undefined> {
  let value: unknown;
  try {
    value = JSON.parse((await request.body()).toString());
  } catch {
    return undefined;
  }
  if (!isObject(value) || typeof value.expression !== "string") return undefined;
  const { expression, requestId, attributes } = value;
  if (requestId !== undefined && typeof requestId !== "string") return undefined;
  if (attributes !== undefined && !isObject(attributes)) return undefined;
  return { expression, ...(requestId === undefined ? {} : { requestId }), ...(attributes ? { attributes } : {}) };
}

function evaluate(source: string, attributes: AttributeSource): AdminResponse {
  let expression: Expression;
  try {
    expression = compileExpression(source);
  } catch (error) {
    if (error instanceof ExpressionError) return jsonResponse({ error: error.message }, 400);
    throw error;
  }
  const result = expression.evaluate(attributes);
  return jsonResponse({
    ...(result.ok ? { value: result.value } : { error: result.error }),
    reads: [...expression.paths],
    clauses: expression.explain(attributes),
  });
}

function withHeaderViews(attributes: JsonObject): JsonObject {
  const viewed: Record<string, unknown> = { ...attributes };
  for (const side of ["request", "response"]) {
    const part = viewed[side];
    if (!isObject(part) || !isObject(part.headers)) continue;
    const entries = Object.entries(part.headers).flatMap(([name, value]) =>
      [value].flat().map((one) => [name, String(one)] as const),
    );
    viewed[side] = { ...part, headers: celHeaders(entries) };
  }
  return viewed;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function configDumpEndpoint(dump: () => Readonly<Record<string, unknown>>): AdminEndpoint {
  return {
    path: ADMIN_PATHS.configDump,
    doc: "The loaded configuration (binds, listeners, routes, backends, policies) and the last reload, as JSON.",
    async GET() {
      const body = `${await runInSlices(safeJsonInSteps(dump()), () => false)}\n`;
      return { status: 200, type: "application/json", body };
    },
  };
}
