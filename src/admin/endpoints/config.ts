/**
 * `POST /debug/cel` evaluates an expression on a recent request, or on attributes given as JSON, and shows each clause
 * with its value; with several requests, it returns only whether each matches. Credentials are redacted as in the trace. `/config_dump` returns the loaded configuration (spec 4.2).
 */

import { peerInput } from "../../base/peer-inputs.ts";
import { runInSlices, type Steps } from "../../base/sliced-work.ts";
import { compileExpression, type Expression, ExpressionError } from "../../cel/expression.ts";
import { type AttributeSource, plainAttributes } from "../../cel/values/attribute-source.ts";
import { celHeaders } from "../../cel/values/headers.ts";
import { defined } from "../../json/json.ts";
import { tryReadJson } from "../../json/read-json.ts";
import { safeJsonInSteps } from "../../json/safe-json.ts";
import { type RecentRequests, WITH_HEADERS } from "../../record/recent-requests.ts";
import type { JsonObject, RequestDetail } from "../../record/trace/record.ts";
import {
  type AdminEndpoint,
  type AdminRequest,
  type AdminResponse,
  jsonResponse,
  textResponse,
} from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

const BODY = peerInput("admin-client/body");

const USAGE = 'send JSON: {"expression": "<CEL>", "requestId": "<id>"}, "requestIds": ["<id>"], or "attributes": {…}\n';

export function celEndpoint(recent: RecentRequests): AdminEndpoint {
  return {
    path: ADMIN_PATHS.cel,
    doc: 'POST {"expression", "requestId" | "requestIds" | "attributes"}: evaluates the expression, part by part.',
    async POST(request) {
      const query = await readQuery(request);
      if (query === undefined) return textResponse(400, USAGE);
      if (query.requestIds !== undefined) return evaluateAll(query.expression, query.requestIds, recent);
      if (query.requestId === undefined)
        return evaluate(query.expression, plainAttributes(asCelValues(query.attributes ?? {})));
      const found = recent.find(query.requestId)[0];
      if (!found) return textResponse(404, `no request ${JSON.stringify(query.requestId)} among the recent ones\n`);
      return evaluate(query.expression, attributesOf(found));
    },
  };
}

const NO_HEADERS = `headers of successful requests are kept only for the last ${WITH_HEADERS} requests`;
const NO_BODY = "bodies are not kept after a request has ended";
const NO_ARGUMENTS = "arguments are not kept after a call has ended";

interface Question {
  readonly expression: string;
  readonly requestId?: string;
  readonly requestIds?: readonly string[];
  readonly attributes?: JsonObject;
}

async function readQuery(request: AdminRequest): Promise<Question | undefined> {
  const value = tryReadJson(BODY, await request.body());
  if (!isObject(value) || typeof value.expression !== "string") return undefined;
  const { expression, requestId, requestIds, attributes } = value;
  if (requestId !== undefined && typeof requestId !== "string") return undefined;
  if (requestIds !== undefined) return isStrings(requestIds) ? { expression, requestIds } : undefined;
  if (attributes !== undefined && !isObject(attributes)) return undefined;
  return { expression, ...defined({ requestId }), ...(attributes ? { attributes } : {}) };
}

function evaluate(source: string, attributes: AttributeSource): AdminResponse {
  const expression = compiled(source);
  if ("status" in expression) return expression;
  const result = expression.evaluate(attributes);
  return jsonResponse({
    ...(result.ok ? { value: result.value } : { error: result.error }),
    reads: [...expression.paths],
    clauses: expression.explain(attributes),
  });
}

interface MatchResult {
  readonly id: string;
  readonly value?: boolean;
  readonly error?: string;
}

/** Compiles the expression once, which takes longer than evaluating it. Unknown requests are left out. */
async function evaluateAll(source: string, ids: readonly string[], recent: RecentRequests): Promise<AdminResponse> {
  const expression = compiled(source);
  if ("status" in expression) return expression;
  return jsonResponse({ results: await runInSlices(matchesInSteps(expression, ids, recent), () => false) });
}

function* matchesInSteps(
  expression: Expression,
  ids: readonly string[],
  recent: RecentRequests,
): Steps<readonly MatchResult[]> {
  const results: MatchResult[] = [];
  for (const id of ids) {
    const found = recent.find(id)[0];
    if (found) results.push({ id, ...matchOf(expression.evaluate(attributesOf(found))) });
    yield;
  }
  return results;
}

function matchOf(result: ReturnType<Expression["evaluate"]>): Omit<MatchResult, "id"> {
  if (!result.ok) return { error: result.error };
  return typeof result.value === "boolean" ? { value: result.value } : { error: "the result is not a bool" };
}

function compiled(source: string): Expression | AdminResponse {
  try {
    return compileExpression(source);
  } catch (error) {
    if (error instanceof ExpressionError) return jsonResponse({ error: error.located }, 400);
    throw error;
  }
}

function attributesOf({ requestState }: RequestDetail): AttributeSource {
  return plainAttributes(withMissingFields(asCelValues(requestState)));
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

function isStrings(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((item) => typeof item === "string");
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
