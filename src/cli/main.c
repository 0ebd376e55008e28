// The program: finds the command, and prints help and versions.
#include "commands.h"
#include "compute.h"
#include "mote.h"
#include "options.h"
#include "output.h"
#include "signals.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const struct command *const commands[] = {
    &command_run,    &command_inspect,    &command_tokenize, &command_template,
    &command_logits, &command_perplexity, &command_doctor,   &command_bench,
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(FILE *out)
{
    fputs("mote runs language models from GGUF files.\n\n"
          "Usage: mote COMMAND [OPTIONS] MODEL …\n\n"
          "Commands:\n",
          out);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        fprintf(out, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
    }
    fputs(
        "  help         print this, or what COMMAND takes: mote help COMMAND\n"
        "  version      print the version\n\n"
        "Example: mote run MODEL.gguf -p \"Why is the sky blue?\"\n\n"
        "Environment: MOTE_ISA=c|avx2|avx512|neon forces the kernels of an instruction set (the answer is the same).\n"
        "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.\n",
        out);
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i]->name, name) == 0) {
            return commands[i];
        }
    }
    return NULL;
}

static int unknown_command(const char *typed)
{
    size_t size = strlen(typed), distance = SIZE_MAX;
    char nearest[32] = "";
    for (size_t i = 0; i < N_COMMANDS; i++) {
        nearest_name(typed, commands[i]->name, &distance, nearest, sizeof nearest);
    }
    nearest_name(typed, "help version", &distance, nearest, sizeof nearest);
    if (size > 5 && strcmp(typed + size - 5, ".gguf") == 0) {
        return usage_error(NULL, "\"%s\" is no command: did you mean mote run %s?", typed, typed);
    }
    if (nearest[0] != '\0') {
        return usage_error(NULL, "\"%s\" is no command: did you mean %s?", typed, nearest);
    }
    return usage_error(NULL, "\"%s\" is no command", typed);
}

static int help(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stdout);
        return EXIT_DONE;
    }
    const struct command *command = find_command(argv[1]);
    if (!command) {
        return unknown_command(argv[1]);
    }
    options_print_help(command, stdout);
    return EXIT_DONE;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 1 || !argv[0]) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[0];
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        return help(argc, argv);
    }
    if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0) {
        printf("mote %s (numerics %d; kernels of this machine: %s)\n", mote_version(), mote_numerics_version(),
               mote_machine_isas());
        return EXIT_DONE;
    }
    const struct command *command = find_command(name);
    if (command) {
        return command->main(argc, argv);
    }
    return name[0] == '-' ? usage_error(NULL, "unknown option %s", name) : unknown_command(name);
}

// A standard stream that is closed gets a descriptor that fails when it is used; else the next file that is opened, a
// model, would be taken for it.
static void occupy_standard_streams(void)
{
    static const int modes[] = {[STDIN_FILENO] = O_WRONLY, [STDOUT_FILENO] = O_RDONLY, [STDERR_FILENO] = O_RDONLY};
    for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++) {
        if (fcntl(i, F_GETFD) < 0 && open("/dev/null", modes[i]) < 0) { // the lowest free number: i
            return;
        }
    }
}

int main(int argc, char **argv)
{
    occupy_standard_streams();
    signals_install();
    bool serve;
    mote_error error = {0};
    mote_status status = compute_join_ranks(&serve, &error);
    int exit_code = EXIT_DONE;
    if (status == MOTE_OK && serve) {
        status = compute_serve_ranks(&error);
    } else if (status == MOTE_OK) {
        exit_code = finish_output(dispatch(argc - 1, argv + 1));
    }
    if (status != MOTE_OK) {
        exit_code = error.message[0] != '\0' ? fail(&error) : EXIT_FAILED; // else another rank says it
    }
    compute_leave_ranks(status == MOTE_OK);
    return exit_code;
}
