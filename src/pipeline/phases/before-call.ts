/**
 * Runs the last step before a backend is called. The backend parses the body first, because rules and limits may depend
 * on it.
 */
import type { Backend } from "../../core/backend.ts";
import type { CompiledScope, HookResult } from "../../core/policy.ts";
import type { Reply } from "../../core/reply.ts";
import { type BodyRules, readBodies } from "./body-rules.ts";
import { inspectBody, type SightRun } from "./llm-sight.ts";
import { type RequestRun, runAdmission } from "./run-hooks.ts";

export interface BeforeCallRun extends SightRun, InnerRun {
  readonly rules: BodyRules;
  askForBody(): void;
  /** Called after the last policy that can reject the request. */
  admitted(): void;
  reply(reply: Reply): void;
}

export function beforeCall(
  run: BeforeCallRun,
  backend: Backend,
  entered: readonly CompiledScope[],
  call: () => void,
): void {
  const reach = backend.inner === undefined ? call : () => passInner(run, backend, call);
  if (backend.prepare !== undefined) prepare(run, backend, entered, () => run.rules.pass(entered, entered, reach));
  else if (readBodies(entered)) inspectBody(run, entered, (charged) => run.rules.pass(entered, charged, call));
  else call();
}

function prepare(run: BeforeCallRun, backend: Backend, entered: readonly CompiledScope[], next: () => void): void {
  if (run.exchange.request.body.kind === "stream") run.askForBody();
  const done = (reply: Reply | undefined): void => {
    // The client may have disconnected in the meantime.
    if (run.exchange.isOver) return;
    if (reply) answer(run, entered, reply);
    else next();
  };
  const failed = (error: unknown): void => run.rules.admit(entered, () => run.fail(error));
  let result: HookResult;
  try {
    result = backend.prepare?.(
      run.exchange,
      entered.some(({ sight }) => sight.model),
      entered.some(({ sight }) => sight.call),
    );
  } catch (error) {
    failed(error);
    return;
  }
  if (result instanceof Promise) result.then(done, failed).catch(run.fail);
  else done(result);
}

/** A rejection by the backend skips the rules, but limits count it. */
function answer(run: BeforeCallRun, entered: readonly CompiledScope[], reply: Reply): void {
  if (reply.status >= 400) run.rules.admit(entered, () => run.reply(reply));
  else
    run.rules.passUncalled(entered, () => {
      run.admitted();
      run.reply(reply);
    });
}

export interface InnerRun extends RequestRun {
  readonly rules: BodyRules;
  enter(scope: CompiledScope): void;
  pass(scope: CompiledScope, list: "access" | "shape", next: () => void): void;
}

/**
 * Runs the policies of scopes inside a backend, for example of one model, after all outer policies have accepted the
 * request.
 */
export function passInner(run: InnerRun, backend: Backend, call: () => void): void {
  const scopes = backend.inner?.(run.exchange) ?? [];
  const passFrom = (at: number): void => {
    const scope = scopes[at];
    if (scope === undefined) call();
    else passScope(run, scope, () => passFrom(at + 1));
  };
  passFrom(0);
}

function passScope(run: InnerRun, scope: CompiledScope, next: () => void): void {
  const { rules, isNew } = run.rules.inside(scope);
  run.enter(scope);
  const reach = (): void => run.pass(scope, "shape", () => rules.pass([scope], [scope], next));
  run.pass(scope, "access", () => {
    if (isNew && scope.admit.head.length > 0) runAdmission(run, "head", scope.admit.head, reach);
    else reach();
  });
}
