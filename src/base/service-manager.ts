/**
 * Notifies systemd that the gateway is ready, and which process is the main process after an upgrade (`Type=notify`).
 * The messages are datagrams over a Unix socket, which Node cannot send, so the program `systemd-notify` sends them
 * (docs/adr/0029).
 */
import { type ProgramRun, runProgram } from "./run-program.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/** An unresponsive service manager must not delay an upgrade. */
const RESPONSE_LIMIT_SECONDS = 10;
const PROGRAM = "systemd-notify";

export interface ServiceManager {
  /** Both methods reject with the reason if the manager could not be notified. */
  ready(): Promise<void>;
  mainProcess(pid: number): Promise<void>;
}

export interface ServiceManagerEnv {
  readonly environment: Environment;
  wait(seconds: number): Promise<void>;
  run?(command: string, args: readonly string[], environment: Environment, until: Promise<void>): Promise<ProgramRun>;
}

/** Returns undefined if no service manager expects notifications. */
export function openServiceManager({
  environment,
  wait,
  run = runNotify,
}: ServiceManagerEnv): ServiceManager | undefined {
  const { NOTIFY_SOCKET, PATH } = environment;
  if (NOTIFY_SOCKET === undefined || NOTIFY_SOCKET === "") return undefined;
  const tell = async (...args: string[]): Promise<void> => {
    const { code, stderr } = await run(PROGRAM, args, { NOTIFY_SOCKET, PATH }, wait(RESPONSE_LIMIT_SECONDS)).catch(
      (error: NodeJS.ErrnoException) => {
        throw new Error(error.code === "ENOENT" ? `the program ${PROGRAM} is missing` : error.message);
      },
    );
    if (code !== 0) throw new Error(`${PROGRAM} failed: ${stderr.trim() || `exit code ${code}`}`);
  };
  return {
    ready: () => tell("--ready"),
    mainProcess: (pid) => tell(`MAINPID=${pid}`),
  };
}

/**
 * Returns why systemd would stop the service when this process exits, or undefined if it would not. Without a
 * notification socket, this process cannot name another main process.
 */
export function endsWithProcess({ NOTIFY_SOCKET, SYSTEMD_EXEC_PID }: Environment, pid: number): string | undefined {
  if (SYSTEMD_EXEC_PID !== String(pid) || (NOTIFY_SOCKET !== undefined && NOTIFY_SOCKET !== "")) return undefined;
  return "systemd would end the new process together with this one: set Type=notify and NotifyAccess=all in the unit";
}

function runNotify(command: string, args: readonly string[], environment: Environment, until: Promise<void>) {
  return runProgram(command, args, { environment, inheritStdin: false, until });
}
