/**
 * Tools of the conformance fixture that request more input (2026-07-28, multi round-trip requests) or report what
 * they receive about their client.
 */
import { CLIENT_CAPABILITIES_META_KEY, inputRequired, type ServerContext } from "@modelcontextprotocol/server";
import { content, type Result, text } from "./conformance-content.ts";
import { type Args, accepted, ask, sample, seal, stateOf, withState } from "./conformance-questions.ts";

export interface FeatureEnv {
  readonly era: "legacy" | "modern";
  /** A list changed: subscribers are told. */
  changed(list: "tools" | "prompts"): void;
  /** What the client said at `initialize`. */
  clientCapabilities(): Record<string, unknown>;
}

export interface Tool {
  readonly description: string;
  readonly inputSchema?: Result;
  run(args: Args, ctx: ServerContext): Result | Promise<Result>;
}

export function inputTools(env: FeatureEnv): Record<string, Tool> {
  return {
    test_input_required_result_elicitation: {
      description: "Asks for a name.",
      run(_, ctx) {
        const answer = accepted(ctx, "user_name");
        if (typeof answer?.name === "string") return content(text(`Hello, ${answer.name}!`));
        return inputRequired({ inputRequests: { user_name: ask("What is your name?", { name: { type: "string" } }) } });
      },
    },
    test_input_required_result_sampling: {
      description: "Asks a model.",
      run(_, ctx) {
        const answer = ctx.mcpReq.inputResponses?.capital_question;
        if (answer) return content(text(JSON.stringify(answer)));
        return inputRequired({ inputRequests: { capital_question: sample("What is the capital of France?", 100) } });
      },
    },
    test_input_required_result_list_roots: {
      description: "Asks for roots.",
      run(_, ctx) {
        const answer = ctx.mcpReq.inputResponses?.client_roots;
        if (answer) return content(text(JSON.stringify(answer)));
        return inputRequired({ inputRequests: { client_roots: { method: "roots/list", params: {} } } });
      },
    },
    test_input_required_result_request_state: {
      description: "Keeps state with the client.",
      run: (_, ctx) => withState(ctx, "confirm", { ok: { type: "boolean" } }, () => content(text("state-ok"))),
    },
    test_input_required_result_tampered_state: {
      description: "Checks the state that the client kept.",
      run: (_, ctx) => withState(ctx, "confirm", { ok: { type: "boolean" } }, () => content(text("state-ok"))),
    },
    test_input_required_result_multiple_inputs: {
      description: "Asks for several things.",
      run(_, ctx) {
        const given = ctx.mcpReq.inputResponses ?? {};
        if (["user_name", "greeting", "client_roots"].every((key) => given[key]) && stateOf(ctx) !== undefined)
          return content(text("all there"));
        return inputRequired({
          inputRequests: {
            user_name: ask("What is your name?", { name: { type: "string" } }),
            greeting: sample("Generate a greeting", 50),
            client_roots: { method: "roots/list", params: {} },
          },
          requestState: seal("multiple"),
        });
      },
    },
    test_input_required_result_multi_round: {
      description: "Asks twice.",
      run(_, ctx) {
        const state = stateOf(ctx);
        if (state === "round-2" && accepted(ctx, "step2")) return content(text("done"));
        if (state === "round-1" && accepted(ctx, "step1")) {
          return inputRequired({
            inputRequests: { step2: ask("Step 2: What is your favorite color?", { color: { type: "string" } }) },
            requestState: seal("round-2"),
          });
        }
        return inputRequired({
          inputRequests: { step1: ask("Step 1: What is your name?", { name: { type: "string" } }) },
          requestState: seal("round-1"),
        });
      },
    },
    test_input_required_result_capabilities: {
      description: "Asks only what the client can answer.",
      run(_, ctx) {
        if (Object.keys(ctx.mcpReq.inputResponses ?? {}).length > 0) return content(text("ok"));
        const can = capabilities(env, ctx);
        const inputRequests = {
          ...(can.sampling ? { sample: sample("Say hello", 50) } : {}),
          ...(can.elicitation ? { ask: ask("Your name?", { name: { type: "string" } }) } : {}),
        };
        return Object.keys(inputRequests).length === 0
          ? content(text("nothing to ask"))
          : inputRequired({ inputRequests });
      },
    },
  };
}

/** Per request in the modern era, once and for all in the legacy one. */
export function capabilities(env: FeatureEnv, ctx: ServerContext): Record<string, unknown> {
  if (env.era === "legacy") return env.clientCapabilities();
  const envelope = ctx.mcpReq.envelope as Record<string, unknown> | undefined;
  return (envelope?.[CLIENT_CAPABILITIES_META_KEY] ?? {}) as Record<string, unknown>;
}
