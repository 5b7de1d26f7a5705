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
import { type RecentRequests, WITH_HEADERS } from "../../pipeline/records/recent-requests.ts";
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
      if (query.requestId === undefined)
        return evaluate(query.expression, plainAttributes(asCelValues(query.attributes ?? {})));
      const found = recent.find(query.requestId)[0];
      if (!found) return textResponse(404, `no request ${JSON.stringify(query.requestId)} among the recent ones\n`);
      return evaluate(query.expression, plainAttributes(withMissingFields(asCelValues(found.requestState))));
    },
  };
}

const NO_HEADERS = `headers of successful requests are kept only for the last ${WITH_HEADERS} requests`;
const NO_BODY = "bodies are not kept after a request has ended";
const NO_ARGUMENTS = "arguments are not kept after a call has ended";

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

/** JSON has neither timestamps nor maps with case-insensitive names. */
function asCelValues(attributes: JsonObject): JsonObject {
  const viewed: Record<string, unknown> = { ...attributes };
  for (const side of ["request", "response"]) {
    const part = viewed[side];
    if (!isObject(part)) continue;
    const startedAt = Date.parse(String(part.startTime));
    viewed[side] = {
      ...part,
      ...(isObject(part.headers) ? { headers: headersView(part.headers) } : {}),
      ...(Number.isNaN(startedAt) ? {} : { startTime: new Date(startedAt) }),
    };
  }
  return viewed;
}

function headersView(headers: Record<string, unknown>): object {
  return celHeaders(
    Object.entries(headers).flatMap(([name, value]) => [value].flat().map((one) => [name, String(one)] as const)),
  );
}

/** Reading a documented field that is not kept fails with the reason, because the field existed during the request. */
function withMissingFields(attributes: JsonObject): JsonObject {
  const { request, response, mcp } = attributes;
  for (const part of [request, response]) {
    if (!isObject(part)) continue;
    failOnRead(part, "headers", NO_HEADERS);
    failOnRead(part, "body", NO_BODY);
  }
  if (!isObject(mcp) || !isObject(mcp.tool)) return attributes;
  const tool = "arguments" in mcp.tool ? mcp.tool : failOnRead({ ...mcp.tool }, "arguments", NO_ARGUMENTS);
  return { ...attributes, mcp: { ...mcp, tool } };
}

function failOnRead(part: Record<string, unknown>, field: string, reason: string): Record<string, unknown> {
  if (field in part) return part;
  return Object.defineProperty(part, field, {
    get() {
      throw new Error(`${field}: ${reason}`);
    },
  });
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
