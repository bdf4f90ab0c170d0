# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_quantykube_global_optspecs
    string join \n json h/help V/version
end

function __fish_quantykube_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_quantykube_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_quantykube_using_subcommand
    set -l cmd (__fish_quantykube_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c quantykube -n "__fish_quantykube_needs_command" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_needs_command" -s h -l help -d 'Print help'
complete -c quantykube -n "__fish_quantykube_needs_command" -s V -l version -d 'Print version'
complete -c quantykube -n "__fish_quantykube_needs_command" -f -a "verify" -d 'Check every bit of a bundle: of the folder this program stands in, or of FILE'
complete -c quantykube -n "__fish_quantykube_needs_command" -f -a "plan" -d 'Print the checks and every step of a move, and change nothing'
complete -c quantykube -n "__fish_quantykube_needs_command" -f -a "install" -d 'Make a move: check, print the steps, take them one by one, each written to a journal first'
complete -c quantykube -n "__fish_quantykube_needs_command" -f -a "undo" -d 'Bring the node back: an open move is put back, a finished one is undone. Needs no bundle and no API server'
complete -c quantykube -n "__fish_quantykube_needs_command" -f -a "resume" -d 'Go on with an open move in the direction it has'
complete -c quantykube -n "__fish_quantykube_needs_command" -f -a "guard" -d 'The guard over the API server\'s manifest'
complete -c quantykube -n "__fish_quantykube_needs_command" -f -a "status" -d 'Say where the cluster\'s data lives, since when, and whether a move is open'
complete -c quantykube -n "__fish_quantykube_needs_command" -f -a "first-boot" -d 'Verify this bundle, wait for the API server, and move (for cloud-init; see quantykube-bundle user-data)'
complete -c quantykube -n "__fish_quantykube_needs_command" -f -a "history" -d 'Tell every move that was made on this node'
complete -c quantykube -n "__fish_quantykube_needs_command" -f -a "kubeadm-config" -d 'Edit kubeadm\'s ConfigMap on its way from kubectl to kubectl, so that kubeadm upgrade names the right side'
complete -c quantykube -n "__fish_quantykube_needs_command" -f -a "remove" -d 'Take our units, programs and settings off a node that is back on etcd. Journals and store files stay'
complete -c quantykube -n "__fish_quantykube_needs_command" -f -a "migrate" -d 'Copy an etcd into a store file by hand, with its revisions'
complete -c quantykube -n "__fish_quantykube_needs_command" -f -a "images" -d 'The images of the bundle'
complete -c quantykube -n "__fish_quantykube_needs_command" -f -a "version" -d 'Print the version of this program'
complete -c quantykube -n "__fish_quantykube_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c quantykube -n "__fish_quantykube_using_subcommand verify" -l id -d 'The id that quantykube-bundle printed when it built the bundle; another one is refused' -r
complete -c quantykube -n "__fish_quantykube_using_subcommand verify" -l public-key -d 'The key the bundle must be signed with, in place of /etc/quantykube/trusted-keys/*.pub: a file or the key itself' -r
complete -c quantykube -n "__fish_quantykube_using_subcommand verify" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_using_subcommand verify" -s h -l help -d 'Print help'
complete -c quantykube -n "__fish_quantykube_using_subcommand plan" -l id -d 'The id that quantykube-bundle printed when it built the bundle; another one is refused' -r
complete -c quantykube -n "__fish_quantykube_using_subcommand plan" -l public-key -d 'The key the bundle must be signed with, in place of /etc/quantykube/trusted-keys/*.pub: a file or the key itself' -r
complete -c quantykube -n "__fish_quantykube_using_subcommand plan" -l undo -d 'Plan the way back instead'
complete -c quantykube -n "__fish_quantykube_using_subcommand plan" -l rehearse -d 'Copy the live cluster into a store that is thrown away, start it, and tell what that took'
complete -c quantykube -n "__fish_quantykube_using_subcommand plan" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_using_subcommand plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c quantykube -n "__fish_quantykube_using_subcommand install" -l id -d 'The id that quantykube-bundle printed when it built the bundle; another one is refused' -r
complete -c quantykube -n "__fish_quantykube_using_subcommand install" -l public-key -d 'The key the bundle must be signed with, in place of /etc/quantykube/trusted-keys/*.pub: a file or the key itself' -r
complete -c quantykube -n "__fish_quantykube_using_subcommand install" -l ready-timeout -d 'How long the API server may take until it is ready; then the move goes back, as far as it can. Slow nodes need more' -r
complete -c quantykube -n "__fish_quantykube_using_subcommand install" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_using_subcommand install" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c quantykube -n "__fish_quantykube_using_subcommand undo" -l ready-timeout -d 'How long the API server may take until it is ready; then the move goes back, as far as it can. Slow nodes need more' -r
complete -c quantykube -n "__fish_quantykube_using_subcommand undo" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_using_subcommand undo" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c quantykube -n "__fish_quantykube_using_subcommand resume" -l boot -d 'As the unit quantykube-resume does it at boot: what can be put back is, and what needs a person is left'
complete -c quantykube -n "__fish_quantykube_using_subcommand resume" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_using_subcommand resume" -s h -l help -d 'Print help'
complete -c quantykube -n "__fish_quantykube_using_subcommand guard; and not __fish_seen_subcommand_from release watch help" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_using_subcommand guard; and not __fish_seen_subcommand_from release watch help" -s h -l help -d 'Print help'
complete -c quantykube -n "__fish_quantykube_using_subcommand guard; and not __fish_seen_subcommand_from release watch help" -f -a "release" -d 'Give back a manifest that the guard took out of the kubelet\'s folder, edited so that it names where the data lives'
complete -c quantykube -n "__fish_quantykube_using_subcommand guard; and not __fish_seen_subcommand_from release watch help" -f -a "watch" -d 'Watch the kubelet\'s folder (for the unit quantykube-guard)'
complete -c quantykube -n "__fish_quantykube_using_subcommand guard; and not __fish_seen_subcommand_from release watch help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c quantykube -n "__fish_quantykube_using_subcommand guard; and __fish_seen_subcommand_from release" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_using_subcommand guard; and __fish_seen_subcommand_from release" -s h -l help -d 'Print help'
complete -c quantykube -n "__fish_quantykube_using_subcommand guard; and __fish_seen_subcommand_from watch" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_using_subcommand guard; and __fish_seen_subcommand_from watch" -s h -l help -d 'Print help'
complete -c quantykube -n "__fish_quantykube_using_subcommand guard; and __fish_seen_subcommand_from help" -f -a "release" -d 'Give back a manifest that the guard took out of the kubelet\'s folder, edited so that it names where the data lives'
complete -c quantykube -n "__fish_quantykube_using_subcommand guard; and __fish_seen_subcommand_from help" -f -a "watch" -d 'Watch the kubelet\'s folder (for the unit quantykube-guard)'
complete -c quantykube -n "__fish_quantykube_using_subcommand guard; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c quantykube -n "__fish_quantykube_using_subcommand status" -l check -d 'One line for a monitoring system; ends as its plugins do: 0 well, 1 warning, 2 critical, 3 unknown'
complete -c quantykube -n "__fish_quantykube_using_subcommand status" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_using_subcommand status" -s h -l help -d 'Print help'
complete -c quantykube -n "__fish_quantykube_using_subcommand first-boot" -l role -d 'What the node is meant to be; on one that is something else nothing is done' -r -f -a "control-plane\t'It runs an API server'
worker\t'It runs none'"
complete -c quantykube -n "__fish_quantykube_using_subcommand first-boot" -l deadline -d 'How long to wait for what the move needs, such as 90s, 30m or 2h' -r
complete -c quantykube -n "__fish_quantykube_using_subcommand first-boot" -l kubeadm-config -d 'On a node without a cluster first run kubeadm init with this configuration' -r -F
complete -c quantykube -n "__fish_quantykube_using_subcommand first-boot" -l id -d 'The id that quantykube-bundle printed when it built the bundle; another one is refused' -r
complete -c quantykube -n "__fish_quantykube_using_subcommand first-boot" -l public-key -d 'The key the bundle must be signed with, in place of /etc/quantykube/trusted-keys/*.pub: a file or the key itself' -r
complete -c quantykube -n "__fish_quantykube_using_subcommand first-boot" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_using_subcommand first-boot" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c quantykube -n "__fish_quantykube_using_subcommand history" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_using_subcommand history" -s h -l help -d 'Print help'
complete -c quantykube -n "__fish_quantykube_using_subcommand kubeadm-config" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_using_subcommand kubeadm-config" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c quantykube -n "__fish_quantykube_using_subcommand remove" -l purge -d 'Remove journals and store files, too. Nothing brings them back'
complete -c quantykube -n "__fish_quantykube_using_subcommand remove" -l dry-run -d 'Only list what would be removed'
complete -c quantykube -n "__fish_quantykube_using_subcommand remove" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_using_subcommand remove" -s h -l help -d 'Print help'
complete -c quantykube -n "__fish_quantykube_using_subcommand migrate" -l endpoints -d 'etcd\'s client URLs, separated by commas; literal addresses. The first that answers is read' -r
complete -c quantykube -n "__fish_quantykube_using_subcommand migrate" -l cert -d 'The client certificate, such as /etc/kubernetes/pki/apiserver-etcd-client.crt' -r -F
complete -c quantykube -n "__fish_quantykube_using_subcommand migrate" -l key -d 'Its key' -r -F
complete -c quantykube -n "__fish_quantykube_using_subcommand migrate" -l cacert -d 'The authority of etcd\'s certificate, such as /etc/kubernetes/pki/etcd/ca.crt' -r -F
complete -c quantykube -n "__fish_quantykube_using_subcommand migrate" -l to -d 'The store file to make; it must not exist, its folder must' -r -F
complete -c quantykube -n "__fish_quantykube_using_subcommand migrate" -l refuse-writes -d 'Fail, without a file, if another client writes to etcd meanwhile'
complete -c quantykube -n "__fish_quantykube_using_subcommand migrate" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_using_subcommand migrate" -s h -l help -d 'Print help'
complete -c quantykube -n "__fish_quantykube_using_subcommand images; and not __fish_seen_subcommand_from load help" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_using_subcommand images; and not __fish_seen_subcommand_from load help" -s h -l help -d 'Print help'
complete -c quantykube -n "__fish_quantykube_using_subcommand images; and not __fish_seen_subcommand_from load help" -f -a "load" -d 'Put the images of a bundle into the node\'s containerd, where the kubelet finds them. What is there already stays'
complete -c quantykube -n "__fish_quantykube_using_subcommand images; and not __fish_seen_subcommand_from load help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c quantykube -n "__fish_quantykube_using_subcommand images; and __fish_seen_subcommand_from load" -l address -d 'Where containerd listens' -r -F
complete -c quantykube -n "__fish_quantykube_using_subcommand images; and __fish_seen_subcommand_from load" -l timeout -d 'How long containerd may be silent, such as 90s or 10m' -r
complete -c quantykube -n "__fish_quantykube_using_subcommand images; and __fish_seen_subcommand_from load" -l id -d 'The id that quantykube-bundle printed when it built the bundle; another one is refused' -r
complete -c quantykube -n "__fish_quantykube_using_subcommand images; and __fish_seen_subcommand_from load" -l public-key -d 'The key the bundle must be signed with, in place of /etc/quantykube/trusted-keys/*.pub: a file or the key itself' -r
complete -c quantykube -n "__fish_quantykube_using_subcommand images; and __fish_seen_subcommand_from load" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_using_subcommand images; and __fish_seen_subcommand_from load" -s h -l help -d 'Print help'
complete -c quantykube -n "__fish_quantykube_using_subcommand images; and __fish_seen_subcommand_from help" -f -a "load" -d 'Put the images of a bundle into the node\'s containerd, where the kubelet finds them. What is there already stays'
complete -c quantykube -n "__fish_quantykube_using_subcommand images; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c quantykube -n "__fish_quantykube_using_subcommand version" -l json -d 'Print one JSON event a line on standard output'
complete -c quantykube -n "__fish_quantykube_using_subcommand version" -s h -l help -d 'Print help'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and not __fish_seen_subcommand_from verify plan install undo resume guard status first-boot history kubeadm-config remove migrate images version help" -f -a "verify" -d 'Check every bit of a bundle: of the folder this program stands in, or of FILE'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and not __fish_seen_subcommand_from verify plan install undo resume guard status first-boot history kubeadm-config remove migrate images version help" -f -a "plan" -d 'Print the checks and every step of a move, and change nothing'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and not __fish_seen_subcommand_from verify plan install undo resume guard status first-boot history kubeadm-config remove migrate images version help" -f -a "install" -d 'Make a move: check, print the steps, take them one by one, each written to a journal first'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and not __fish_seen_subcommand_from verify plan install undo resume guard status first-boot history kubeadm-config remove migrate images version help" -f -a "undo" -d 'Bring the node back: an open move is put back, a finished one is undone. Needs no bundle and no API server'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and not __fish_seen_subcommand_from verify plan install undo resume guard status first-boot history kubeadm-config remove migrate images version help" -f -a "resume" -d 'Go on with an open move in the direction it has'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and not __fish_seen_subcommand_from verify plan install undo resume guard status first-boot history kubeadm-config remove migrate images version help" -f -a "guard" -d 'The guard over the API server\'s manifest'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and not __fish_seen_subcommand_from verify plan install undo resume guard status first-boot history kubeadm-config remove migrate images version help" -f -a "status" -d 'Say where the cluster\'s data lives, since when, and whether a move is open'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and not __fish_seen_subcommand_from verify plan install undo resume guard status first-boot history kubeadm-config remove migrate images version help" -f -a "first-boot" -d 'Verify this bundle, wait for the API server, and move (for cloud-init; see quantykube-bundle user-data)'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and not __fish_seen_subcommand_from verify plan install undo resume guard status first-boot history kubeadm-config remove migrate images version help" -f -a "history" -d 'Tell every move that was made on this node'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and not __fish_seen_subcommand_from verify plan install undo resume guard status first-boot history kubeadm-config remove migrate images version help" -f -a "kubeadm-config" -d 'Edit kubeadm\'s ConfigMap on its way from kubectl to kubectl, so that kubeadm upgrade names the right side'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and not __fish_seen_subcommand_from verify plan install undo resume guard status first-boot history kubeadm-config remove migrate images version help" -f -a "remove" -d 'Take our units, programs and settings off a node that is back on etcd. Journals and store files stay'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and not __fish_seen_subcommand_from verify plan install undo resume guard status first-boot history kubeadm-config remove migrate images version help" -f -a "migrate" -d 'Copy an etcd into a store file by hand, with its revisions'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and not __fish_seen_subcommand_from verify plan install undo resume guard status first-boot history kubeadm-config remove migrate images version help" -f -a "images" -d 'The images of the bundle'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and not __fish_seen_subcommand_from verify plan install undo resume guard status first-boot history kubeadm-config remove migrate images version help" -f -a "version" -d 'Print the version of this program'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and not __fish_seen_subcommand_from verify plan install undo resume guard status first-boot history kubeadm-config remove migrate images version help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and __fish_seen_subcommand_from guard" -f -a "release" -d 'Give back a manifest that the guard took out of the kubelet\'s folder, edited so that it names where the data lives'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and __fish_seen_subcommand_from guard" -f -a "watch" -d 'Watch the kubelet\'s folder (for the unit quantykube-guard)'
complete -c quantykube -n "__fish_quantykube_using_subcommand help; and __fish_seen_subcommand_from images" -f -a "load" -d 'Put the images of a bundle into the node\'s containerd, where the kubelet finds them. What is there already stays'
