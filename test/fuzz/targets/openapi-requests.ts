/**
 * Requests of OpenAPI tools: what a server reads from a request by the description are the arguments of the call, or the
 * call is rejected. No argument adds, repeats, or replaces anything else.
 */

import { peerInput } from "../../../src/base/peer-inputs.ts";
import { finish } from "../../../src/base/sliced-work.ts";
import { parseOpenApi } from "../../../src/mcp/openapi/document.ts";
import { convertOperations } from "../../../src/mcp/openapi/operations.ts";
import { apiRequest } from "../../../src/mcp/openapi/request.ts";
import { ArgumentProblem } from "../../../src/mcp/openapi/value-shape.ts";
import {
  apiArguments,
  apiDescription,
  apiOperation,
  OWN_HEADER,
  OWN_KEY,
  readArguments,
  readRequest,
} from "../../differential/openapi-cases.ts";
import { Random } from "../../support/random.ts";
import { defineTarget, expect, expectSame } from "../target.ts";

const YAML = peerInput("openapi-server/yaml-description");

type RequestCase = {
  /** The operation is that of `apiOperation` with this seed. */
  readonly seed: number;
  /** JSON of the arguments. */
  readonly args: string;
};

function generate(random: Random): RequestCase {
  const seed = random.next();
  return { seed, args: JSON.stringify(apiArguments(random, apiOperation(new Random(seed), 0))) };
}

export const openApiRequests = defineTarget<RequestCase>({
  name: "openapi-requests",
  seeds: [1, 2, 3, 4, 5, 6].map((seed) => generate(new Random(seed))),
  smokeCases: 400,
  generate,
  async run({ seed, args }) {
    const values = parsedArguments(args);
    if (values === undefined) return "no arguments";
    const operation = apiOperation(new Random(seed), 0);
    const { byName } = finish(
      convertOperations(parseOpenApi(JSON.stringify(apiDescription([operation])), YAML), { reserved: [] }),
    );
    const tool = byName.get(operation.name);
    if (tool === undefined) return "no tool";
    const bodyText = values.body === undefined ? undefined : JSON.stringify(values.body);
    try {
      const request = apiRequest(tool, { values, bodyText }, { headers: OWN_HEADER, query: OWN_KEY });
      const headers: [string, string][] = [];
      for (const name of request.headers.names())
        for (const value of request.headers.getAll(name)) headers.push([name, value]);
      const reading = await readRequest(request.path, headers, request.body ?? Buffer.alloc(0));
      expect(request.path.split("?", 1)[0]?.split("/").length === 3, `another path: ${request.path}`);
      expectSame(positiveZero(readArguments(operation, reading)), positiveZero(values), request.path);
      return `sent with ${tool.parameters.length} parameters`;
    } catch (error) {
      if (error instanceof ArgumentProblem) return `rejected: ${error.message.replace(/".*?"/gs, "…").slice(0, 60)}`;
      throw error;
    }
  },
});

/** JSON writes -0 as 0. */
function positiveZero(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}

function parsedArguments(args: string): Record<string, unknown> | undefined {
  try {
    const values = JSON.parse(args) as unknown;
    return typeof values === "object" && values !== null && !Array.isArray(values)
      ? (values as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}
