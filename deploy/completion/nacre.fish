# Completion of nacre, lctl and lfs for fish: put it into /usr/share/fish/vendor_completions.d, with links lctl.fish and lfs.fish.
# Made from deploy/completion/commands by scripts/completion.py: change it there.

# Whether the words up to the cursor begin with this command, and name no longer one.
function __nacre_is
    set -l words (commandline -opc)
    set words[1] (string replace -r '.*/' '' -- $words[1])
    set -l command
    for w in $words
        contains -- (string join -- ' ' $command $w) 'nacre' 'nacre up' 'nacre down' 'nacre status' 'nacre shell' 'nacre watch' 'nacre wipe' 'nacre fsck' 'nacre scrub' 'nacre object' 'nacre object show' 'nacre object dump' 'nacre backup' 'nacre backup mdt' 'nacre backup mgt' 'nacre backup ost-labels' 'nacre backup list' 'nacre backup verify' 'nacre restore' 'nacre restore mdt' 'nacre restore mgt' 'nacre restore ost-labels' 'nacre snapshot' 'nacre snapshot create' 'nacre snapshot list' 'nacre snapshot mount' 'nacre snapshot umount' 'nacre snapshot modify' 'nacre snapshot destroy' 'nacre snapshot restore' 'nacre copy' 'nacre checksum' 'nacre checksum scan' 'nacre drain' 'nacre remove' 'nacre replace' 'nacre rebalance' 'nacre lost' 'nacre movements' 'nacre deploy' 'nacre deploy plan' 'nacre deploy apply' 'nacre deploy status' 'nacre deploy wipe' 'nacre deploy inventory' 'nacre deploy preset' 'nacre deploy facts' 'nacre deploy erase' 'nacre config' 'nacre config show' 'nacre config history' 'nacre config diff' 'nacre config rollback' 'nacre config export' 'nacre config import' 'nacre plan' 'nacre policy' 'nacre policy check' 'nacre policy run' 'nacre policy status' 'nacre policy history' 'nacre trash' 'nacre trash on' 'nacre trash off' 'nacre trash status' 'nacre trash list' 'nacre trash restore' 'nacre trash empty' 'nacre userdir' 'nacre userdir add' 'nacre userdir remove' 'nacre userdir list' 'nacre userdir check' 'nacre userdir login' 'nacre top' 'nacre top jobs' 'nacre top users' 'nacre top groups' 'nacre top projects' 'nacre top dirs' 'nacre metrics' 'nacre dashboard' 'nacre dashboard token' 'nacre dashboard token add' 'nacre dashboard token list' 'nacre dashboard token remove' 'nacre events' 'nacre tune' 'nacre trace' 'nacre bench' 'nacre bench ior' 'nacre bench iozone' 'nacre bench mdtest' 'nacre bench io500' 'nacre survey' 'nacre survey all' 'nacre survey sgpdd' 'nacre survey obdfilter' 'nacre survey ost' 'nacre survey mds' 'nacre lst' 'nacre lst serve' 'nacre lst new_session' 'nacre lst end_session' 'nacre lst show_session' 'nacre lst add_group' 'nacre lst update_group' 'nacre lst list_group' 'nacre lst del_group' 'nacre lst add_batch' 'nacre lst list_batch' 'nacre lst del_batch' 'nacre lst add_test' 'nacre lst run' 'nacre lst stop' 'nacre lst query' 'nacre lst stat' 'nacre lst ping' 'nacre lst show_error' 'nacre history' 'nacre doctor' 'nacre maintenance' 'nacre maintenance on' 'nacre maintenance off' 'nacre maintenance status' 'nacre domains' 'nacre quota' 'nacre quota verify' 'nacre report' 'nacre report striping' 'nacre report owners' 'nacre report sizes' 'nacre report ages' 'nacre ha' 'nacre ha plan' 'nacre ha diff' 'nacre ha inventory' 'nacre ha where' 'nacre ha takeover' 'nacre ha giveback' 'nacre ha controller' 'nacre ha define' 'nacre ha undefine' 'nacre ha status' 'nacre ha start' 'nacre ha stop' 'nacre ha monitor' 'nacre mgt' 'nacre mgt import' 'nacre mgt export' 'nacre param' 'nacre param help' 'nacre param list' 'nacre install-links' 'lctl' 'lctl lfsck_start' 'lctl lfsck_stop' 'lctl lfsck_query' 'lctl barrier_stat' 'lctl debug_list' 'lctl dk' 'lctl debug_kernel' 'lfs'
        or break
        set command $command $w
    end
    test (string join -- ' ' $command) = "$argv"
end

complete -c nacre -n '__nacre_is nacre' -f -a 'up down status shell watch wipe fsck scrub object backup restore snapshot copy checksum drain remove replace rebalance lost movements deploy config plan policy trash userdir top metrics dashboard events tune trace bench survey lst history doctor maintenance domains quota report ha mgt param install-links'
complete -c nacre -n '__nacre_is nacre up' -f
complete -c nacre -n '__nacre_is nacre up' -l dir -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre up' -l mount -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre up' -l osts -r -f
complete -c nacre -n '__nacre_is nacre up' -l mdts -r -f
complete -c nacre -n '__nacre_is nacre up' -l fsname -r -f
complete -c nacre -n '__nacre_is nacre up' -l options -r -f
complete -c nacre -n '__nacre_is nacre up' -l metrics
complete -c nacre -n '__nacre_is nacre up' -l dashboard
complete -c nacre -n '__nacre_is nacre up' -l no-watch
complete -c nacre -n '__nacre_is nacre up' -l quiet
complete -c nacre -n '__nacre_is nacre down' -f
complete -c nacre -n '__nacre_is nacre down' -l dir -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre down' -l force
complete -c nacre -n '__nacre_is nacre status' -f
complete -c nacre -n '__nacre_is nacre status' -l dir -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre status' -l json
complete -c nacre -n '__nacre_is nacre shell' -f
complete -c nacre -n '__nacre_is nacre shell' -l dir -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre watch' -f
complete -c nacre -n '__nacre_is nacre watch' -l dir -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre wipe' -f
complete -c nacre -n '__nacre_is nacre wipe' -l dir -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre fsck' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre fsck' -l repair
complete -c nacre -n '__nacre_is nacre fsck' -s p
complete -c nacre -n '__nacre_is nacre fsck' -l cut-journal
complete -c nacre -n '__nacre_is nacre fsck' -l read-data
complete -c nacre -n '__nacre_is nacre fsck' -l online
complete -c nacre -n '__nacre_is nacre fsck' -l across
complete -c nacre -n '__nacre_is nacre fsck' -l stop
complete -c nacre -n '__nacre_is nacre fsck' -l json
complete -c nacre -n '__nacre_is nacre fsck' -l quiet
complete -c nacre -n '__nacre_is nacre scrub' -f -a '(lfs osts 2>/dev/null | sed -n '\''s/^[0-9]*: \(.*\)_UUID .*/\1/p'\'')'
complete -c nacre -n '__nacre_is nacre scrub' -l rate -r -f
complete -c nacre -n '__nacre_is nacre scrub' -l restart
complete -c nacre -n '__nacre_is nacre scrub' -l no-wait
complete -c nacre -n '__nacre_is nacre scrub' -l stop
complete -c nacre -n '__nacre_is nacre scrub' -l status
complete -c nacre -n '__nacre_is nacre scrub' -l json
complete -c nacre -n '__nacre_is nacre object' -f -a 'show dump'
complete -c nacre -n '__nacre_is nacre object show' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre object show' -l json
complete -c nacre -n '__nacre_is nacre object dump' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre backup' -f -a 'mdt mgt ost-labels list verify'
complete -c nacre -n '__nacre_is nacre backup mdt' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre backup mdt' -l incremental
complete -c nacre -n '__nacre_is nacre backup mdt' -l json
complete -c nacre -n '__nacre_is nacre backup mdt' -l quiet
complete -c nacre -n '__nacre_is nacre backup mgt' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre backup mgt' -l incremental
complete -c nacre -n '__nacre_is nacre backup mgt' -l json
complete -c nacre -n '__nacre_is nacre backup mgt' -l quiet
complete -c nacre -n '__nacre_is nacre backup ost-labels' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre backup ost-labels' -l incremental
complete -c nacre -n '__nacre_is nacre backup ost-labels' -l json
complete -c nacre -n '__nacre_is nacre backup ost-labels' -l quiet
complete -c nacre -n '__nacre_is nacre backup list' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre backup list' -l json
complete -c nacre -n '__nacre_is nacre backup verify' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre backup verify' -l json
complete -c nacre -n '__nacre_is nacre restore' -f -a 'mdt mgt ost-labels'
complete -c nacre -n '__nacre_is nacre restore mdt' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre restore mdt' -l generation -r -f
complete -c nacre -n '__nacre_is nacre restore mdt' -l keep-clients
complete -c nacre -n '__nacre_is nacre restore mdt' -l json
complete -c nacre -n '__nacre_is nacre restore mdt' -l quiet
complete -c nacre -n '__nacre_is nacre restore mgt' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre restore mgt' -l generation -r -f
complete -c nacre -n '__nacre_is nacre restore mgt' -l keep-clients
complete -c nacre -n '__nacre_is nacre restore mgt' -l json
complete -c nacre -n '__nacre_is nacre restore mgt' -l quiet
complete -c nacre -n '__nacre_is nacre restore ost-labels' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre restore ost-labels' -l generation -r -f
complete -c nacre -n '__nacre_is nacre restore ost-labels' -l json
complete -c nacre -n '__nacre_is nacre restore ost-labels' -l quiet
complete -c nacre -n '__nacre_is nacre snapshot' -f -a 'create list mount umount modify destroy restore'
complete -c nacre -n '__nacre_is nacre snapshot create' -f
complete -c nacre -n '__nacre_is nacre snapshot create' -l fsname -r -f
complete -c nacre -n '__nacre_is nacre snapshot create' -l name -r -f
complete -c nacre -n '__nacre_is nacre snapshot create' -l comment -r -f
complete -c nacre -n '__nacre_is nacre snapshot create' -l barrier -r -f -a 'on off'
complete -c nacre -n '__nacre_is nacre snapshot create' -l timeout -r -f
complete -c nacre -n '__nacre_is nacre snapshot create' -l quiet
complete -c nacre -n '__nacre_is nacre snapshot list' -f -a '(nacre snapshot list 2>/dev/null | sed -n '\''s/^snapshot_name: //p'\'')'
complete -c nacre -n '__nacre_is nacre snapshot list' -l fsname -r -f
complete -c nacre -n '__nacre_is nacre snapshot list' -l name -r -f
complete -c nacre -n '__nacre_is nacre snapshot list' -l detail
complete -c nacre -n '__nacre_is nacre snapshot list' -l json
complete -c nacre -n '__nacre_is nacre snapshot mount' -f -a '(nacre snapshot list 2>/dev/null | sed -n '\''s/^snapshot_name: //p'\'')'
complete -c nacre -n '__nacre_is nacre snapshot mount' -l fsname -r -f
complete -c nacre -n '__nacre_is nacre snapshot mount' -l name -r -f
complete -c nacre -n '__nacre_is nacre snapshot mount' -l nid -r -f
complete -c nacre -n '__nacre_is nacre snapshot mount' -l port -r -f
complete -c nacre -n '__nacre_is nacre snapshot umount' -f -a '(nacre snapshot list 2>/dev/null | sed -n '\''s/^snapshot_name: //p'\'')'
complete -c nacre -n '__nacre_is nacre snapshot umount' -l fsname -r -f
complete -c nacre -n '__nacre_is nacre snapshot umount' -l name -r -f
complete -c nacre -n '__nacre_is nacre snapshot modify' -f -a '(nacre snapshot list 2>/dev/null | sed -n '\''s/^snapshot_name: //p'\'')'
complete -c nacre -n '__nacre_is nacre snapshot modify' -l fsname -r -f
complete -c nacre -n '__nacre_is nacre snapshot modify' -l name -r -f
complete -c nacre -n '__nacre_is nacre snapshot modify' -l comment -r -f
complete -c nacre -n '__nacre_is nacre snapshot modify' -l new -r -f
complete -c nacre -n '__nacre_is nacre snapshot destroy' -f -a '(nacre snapshot list 2>/dev/null | sed -n '\''s/^snapshot_name: //p'\'')'
complete -c nacre -n '__nacre_is nacre snapshot destroy' -l fsname -r -f
complete -c nacre -n '__nacre_is nacre snapshot destroy' -l name -r -f
complete -c nacre -n '__nacre_is nacre snapshot destroy' -l force
complete -c nacre -n '__nacre_is nacre snapshot destroy' -l quiet
complete -c nacre -n '__nacre_is nacre snapshot restore' -F
complete -c nacre -n '__nacre_is nacre snapshot restore' -l to -r -F
complete -c nacre -n '__nacre_is nacre snapshot restore' -l from -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre snapshot restore' -l overwrite
complete -c nacre -n '__nacre_is nacre snapshot restore' -l threads -r -f
complete -c nacre -n '__nacre_is nacre snapshot restore' -l fsname -r -f
complete -c nacre -n '__nacre_is nacre snapshot restore' -l json
complete -c nacre -n '__nacre_is nacre snapshot restore' -l quiet
complete -c nacre -n '__nacre_is nacre copy' -F
complete -c nacre -n '__nacre_is nacre copy' -l threads -r -f
complete -c nacre -n '__nacre_is nacre copy' -l layout -r -f
complete -c nacre -n '__nacre_is nacre copy' -l delete
complete -c nacre -n '__nacre_is nacre copy' -l force
complete -c nacre -n '__nacre_is nacre copy' -l verify -r -f
complete -c nacre -n '__nacre_is nacre copy' -l dry-run
complete -c nacre -n '__nacre_is nacre copy' -l json
complete -c nacre -n '__nacre_is nacre copy' -l quiet
complete -c nacre -n '__nacre_is nacre checksum' -f -a 'scan'
complete -c nacre -n '__nacre_is nacre checksum scan' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre checksum scan' -l xattr -r -f
complete -c nacre -n '__nacre_is nacre checksum scan' -l type -r -f -a 'adler32 crc32c md5 sha256'
complete -c nacre -n '__nacre_is nacre checksum scan' -l set
complete -c nacre -n '__nacre_is nacre checksum scan' -l since -r -f
complete -c nacre -n '__nacre_is nacre checksum scan' -l state -r -F
complete -c nacre -n '__nacre_is nacre checksum scan' -l threads -r -f
complete -c nacre -n '__nacre_is nacre checksum scan' -l json
complete -c nacre -n '__nacre_is nacre checksum scan' -l quiet
complete -c nacre -n '__nacre_is nacre drain' -f -a '(lfs osts 2>/dev/null | sed -n '\''s/^[0-9]*: \(.*\)_UUID .*/\1/p'\'')'
complete -c nacre -n '__nacre_is nacre drain' -l stop
complete -c nacre -n '__nacre_is nacre drain' -l threads -r -f
complete -c nacre -n '__nacre_is nacre drain' -l bandwidth -r -f
complete -c nacre -n '__nacre_is nacre drain' -l json
complete -c nacre -n '__nacre_is nacre drain' -s q
complete -c nacre -n '__nacre_is nacre remove' -f -a '(lfs osts 2>/dev/null | sed -n '\''s/^[0-9]*: \(.*\)_UUID .*/\1/p'\'')'
complete -c nacre -n '__nacre_is nacre remove' -l force
complete -c nacre -n '__nacre_is nacre remove' -l threads -r -f
complete -c nacre -n '__nacre_is nacre remove' -l bandwidth -r -f
complete -c nacre -n '__nacre_is nacre remove' -l json
complete -c nacre -n '__nacre_is nacre remove' -s q
complete -c nacre -n '__nacre_is nacre replace' -f -a '(lfs osts 2>/dev/null | sed -n '\''s/^[0-9]*: \(.*\)_UUID .*/\1/p'\'')'
complete -c nacre -n '__nacre_is nacre replace' -l no-wait
complete -c nacre -n '__nacre_is nacre replace' -l json
complete -c nacre -n '__nacre_is nacre replace' -s q
complete -c nacre -n '__nacre_is nacre rebalance' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre rebalance' -l threshold -r -f
complete -c nacre -n '__nacre_is nacre rebalance' -l bandwidth -r -f
complete -c nacre -n '__nacre_is nacre rebalance' -l dry-run
complete -c nacre -n '__nacre_is nacre rebalance' -l background -r -f
complete -c nacre -n '__nacre_is nacre rebalance' -l stop
complete -c nacre -n '__nacre_is nacre rebalance' -l status
complete -c nacre -n '__nacre_is nacre rebalance' -l json
complete -c nacre -n '__nacre_is nacre rebalance' -s q
complete -c nacre -n '__nacre_is nacre lost' -f -a '(lfs osts 2>/dev/null | sed -n '\''s/^[0-9]*: \(.*\)_UUID .*/\1/p'\'')'
complete -c nacre -n '__nacre_is nacre lost' -l remove
complete -c nacre -n '__nacre_is nacre lost' -l recreate
complete -c nacre -n '__nacre_is nacre lost' -l json
complete -c nacre -n '__nacre_is nacre lost' -s q
complete -c nacre -n '__nacre_is nacre movements' -F
complete -c nacre -n '__nacre_is nacre movements' -l json
complete -c nacre -n '__nacre_is nacre deploy' -f -a 'plan apply status wipe inventory preset facts erase'
complete -c nacre -n '__nacre_is nacre deploy plan' -F
complete -c nacre -n '__nacre_is nacre deploy plan' -l commands
complete -c nacre -n '__nacre_is nacre deploy plan' -l replace -r -f
complete -c nacre -n '__nacre_is nacre deploy plan' -l without -r -f
complete -c nacre -n '__nacre_is nacre deploy plan' -l facts -r -F
complete -c nacre -n '__nacre_is nacre deploy plan' -l json
complete -c nacre -n '__nacre_is nacre deploy apply' -F
complete -c nacre -n '__nacre_is nacre deploy apply' -l replace -r -f
complete -c nacre -n '__nacre_is nacre deploy apply' -l without -r -f
complete -c nacre -n '__nacre_is nacre deploy apply' -l json
complete -c nacre -n '__nacre_is nacre deploy apply' -l quiet
complete -c nacre -n '__nacre_is nacre deploy status' -F
complete -c nacre -n '__nacre_is nacre deploy status' -l facts -r -F
complete -c nacre -n '__nacre_is nacre deploy status' -l json
complete -c nacre -n '__nacre_is nacre deploy wipe' -F
complete -c nacre -n '__nacre_is nacre deploy wipe' -l yes
complete -c nacre -n '__nacre_is nacre deploy wipe' -l commands
complete -c nacre -n '__nacre_is nacre deploy wipe' -l json
complete -c nacre -n '__nacre_is nacre deploy wipe' -l quiet
complete -c nacre -n '__nacre_is nacre deploy inventory' -F
complete -c nacre -n '__nacre_is nacre deploy inventory' -l json
complete -c nacre -n '__nacre_is nacre deploy preset' -f -a 'laptop brick grid-site wide'
complete -c nacre -n '__nacre_is nacre deploy facts' -f
complete -c nacre -n '__nacre_is nacre deploy facts' -l dir -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre deploy facts' -l device -r -F
complete -c nacre -n '__nacre_is nacre deploy facts' -l file -r -F
complete -c nacre -n '__nacre_is nacre deploy facts' -l reach -r -f
complete -c nacre -n '__nacre_is nacre deploy facts' -l json
complete -c nacre -n '__nacre_is nacre deploy erase' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre deploy erase' -l fsname -r -f
complete -c nacre -n '__nacre_is nacre config' -f -a 'show history diff rollback export import'
complete -c nacre -n '__nacre_is nacre config show' -f
complete -c nacre -n '__nacre_is nacre config show' -l json
complete -c nacre -n '__nacre_is nacre config show' -l mgs -r -f
complete -c nacre -n '__nacre_is nacre config history' -f
complete -c nacre -n '__nacre_is nacre config history' -l count -r -f
complete -c nacre -n '__nacre_is nacre config history' -l json
complete -c nacre -n '__nacre_is nacre config history' -l mgs -r -f
complete -c nacre -n '__nacre_is nacre config diff' -f
complete -c nacre -n '__nacre_is nacre config diff' -l json
complete -c nacre -n '__nacre_is nacre config diff' -l mgs -r -f
complete -c nacre -n '__nacre_is nacre config rollback' -f
complete -c nacre -n '__nacre_is nacre config rollback' -l dry-run
complete -c nacre -n '__nacre_is nacre config rollback' -l json
complete -c nacre -n '__nacre_is nacre config export' -f
complete -c nacre -n '__nacre_is nacre config export' -l mgs -r -f
complete -c nacre -n '__nacre_is nacre config import' -F
complete -c nacre -n '__nacre_is nacre config import' -l dry-run
complete -c nacre -n '__nacre_is nacre config import' -l json
complete -c nacre -n '__nacre_is nacre plan' -f
complete -c nacre -n '__nacre_is nacre plan' -l servers -r -f
complete -c nacre -n '__nacre_is nacre plan' -l disks -r -f
complete -c nacre -n '__nacre_is nacre plan' -l disk-size -r -f
complete -c nacre -n '__nacre_is nacre plan' -l disk-rate -r -f
complete -c nacre -n '__nacre_is nacre plan' -l net -r -f
complete -c nacre -n '__nacre_is nacre plan' -l clients -r -f
complete -c nacre -n '__nacre_is nacre plan' -l client-net -r -f
complete -c nacre -n '__nacre_is nacre plan' -l raid -r -f
complete -c nacre -n '__nacre_is nacre plan' -l mdts -r -f
complete -c nacre -n '__nacre_is nacre plan' -l json
complete -c nacre -n '__nacre_is nacre policy' -f -a 'check run status history'
complete -c nacre -n '__nacre_is nacre policy check' -F
complete -c nacre -n '__nacre_is nacre policy check' -l json
complete -c nacre -n '__nacre_is nacre policy run' -F
complete -c nacre -n '__nacre_is nacre policy run' -l dry-run
complete -c nacre -n '__nacre_is nacre policy run' -l rule -r -f
complete -c nacre -n '__nacre_is nacre policy run' -l state -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre policy run' -l json
complete -c nacre -n '__nacre_is nacre policy run' -l quiet
complete -c nacre -n '__nacre_is nacre policy status' -f
complete -c nacre -n '__nacre_is nacre policy status' -l state -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre policy status' -l json
complete -c nacre -n '__nacre_is nacre policy history' -f
complete -c nacre -n '__nacre_is nacre policy history' -l count -r -f
complete -c nacre -n '__nacre_is nacre policy history' -l rule -r -f
complete -c nacre -n '__nacre_is nacre policy history' -l state -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre policy history' -l json
complete -c nacre -n '__nacre_is nacre trash' -f -a 'on off status list restore empty'
complete -c nacre -n '__nacre_is nacre trash on' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre trash on' -l quiet
complete -c nacre -n '__nacre_is nacre trash off' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre trash off' -l quiet
complete -c nacre -n '__nacre_is nacre trash status' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre trash status' -l json
complete -c nacre -n '__nacre_is nacre trash list' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre trash list' -l json
complete -c nacre -n '__nacre_is nacre trash restore' -F
complete -c nacre -n '__nacre_is nacre trash restore' -l recursive
complete -c nacre -n '__nacre_is nacre trash restore' -l to -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre trash restore' -l as -r -f
complete -c nacre -n '__nacre_is nacre trash restore' -l dry-run
complete -c nacre -n '__nacre_is nacre trash restore' -l json
complete -c nacre -n '__nacre_is nacre trash restore' -l quiet
complete -c nacre -n '__nacre_is nacre trash empty' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre trash empty' -l older -r -f
complete -c nacre -n '__nacre_is nacre trash empty' -l all
complete -c nacre -n '__nacre_is nacre trash empty' -l dry-run
complete -c nacre -n '__nacre_is nacre trash empty' -l json
complete -c nacre -n '__nacre_is nacre trash empty' -l quiet
complete -c nacre -n '__nacre_is nacre userdir' -f -a 'add remove list check login'
complete -c nacre -n '__nacre_is nacre userdir add' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre userdir add' -l user -r -f -a '(__fish_complete_users)'
complete -c nacre -n '__nacre_is nacre userdir add' -l group -r -f -a '(__fish_complete_groups)'
complete -c nacre -n '__nacre_is nacre userdir add' -l under -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre userdir add' -l file -r -F
complete -c nacre -n '__nacre_is nacre userdir add' -l mode -r -f
complete -c nacre -n '__nacre_is nacre userdir add' -l gid -r -f -a '(__fish_complete_groups)'
complete -c nacre -n '__nacre_is nacre userdir add' -l limits -r -f -a 'user group project directory'
complete -c nacre -n '__nacre_is nacre userdir add' -l quota-space -r -f
complete -c nacre -n '__nacre_is nacre userdir add' -l quota-inodes -r -f
complete -c nacre -n '__nacre_is nacre userdir add' -l project -r -f
complete -c nacre -n '__nacre_is nacre userdir add' -l pool -r -f
complete -c nacre -n '__nacre_is nacre userdir add' -l stripe -r -f
complete -c nacre -n '__nacre_is nacre userdir add' -l dry-run
complete -c nacre -n '__nacre_is nacre userdir add' -l json
complete -c nacre -n '__nacre_is nacre userdir remove' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre userdir remove' -l user -r -f -a '(__fish_complete_users)'
complete -c nacre -n '__nacre_is nacre userdir remove' -l group -r -f -a '(__fish_complete_groups)'
complete -c nacre -n '__nacre_is nacre userdir remove' -l under -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre userdir remove' -l file -r -F
complete -c nacre -n '__nacre_is nacre userdir remove' -l quota
complete -c nacre -n '__nacre_is nacre userdir remove' -l yes
complete -c nacre -n '__nacre_is nacre userdir remove' -l dry-run
complete -c nacre -n '__nacre_is nacre userdir remove' -l json
complete -c nacre -n '__nacre_is nacre userdir remove' -l quiet
complete -c nacre -n '__nacre_is nacre userdir list' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre userdir list' -l file -r -F
complete -c nacre -n '__nacre_is nacre userdir list' -l json
complete -c nacre -n '__nacre_is nacre userdir check' -F
complete -c nacre -n '__nacre_is nacre userdir check' -l json
complete -c nacre -n '__nacre_is nacre userdir login' -f
complete -c nacre -n '__nacre_is nacre userdir login' -l file -r -F
complete -c nacre -n '__nacre_is nacre userdir login' -l timeout -r -f
complete -c nacre -n '__nacre_is nacre top' -f -a 'jobs users groups projects dirs'
complete -c nacre -n '__nacre_is nacre top' -l view -r -f -a 'targets jobs clients latencies'
complete -c nacre -n '__nacre_is nacre top' -l sort -r -f
complete -c nacre -n '__nacre_is nacre top' -l filter -r -f
complete -c nacre -n '__nacre_is nacre top' -l interval -r -f
complete -c nacre -n '__nacre_is nacre top' -l looks -r -f
complete -c nacre -n '__nacre_is nacre top' -l batch
complete -c nacre -n '__nacre_is nacre top' -l json
complete -c nacre -n '__nacre_is nacre top jobs' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre top jobs' -l count -r -f
complete -c nacre -n '__nacre_is nacre top jobs' -l interval -r -f
complete -c nacre -n '__nacre_is nacre top jobs' -l json
complete -c nacre -n '__nacre_is nacre top users' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre top users' -l count -r -f
complete -c nacre -n '__nacre_is nacre top users' -l by -r -f -a 'space files'
complete -c nacre -n '__nacre_is nacre top users' -l json
complete -c nacre -n '__nacre_is nacre top groups' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre top groups' -l count -r -f
complete -c nacre -n '__nacre_is nacre top groups' -l by -r -f -a 'space files'
complete -c nacre -n '__nacre_is nacre top groups' -l json
complete -c nacre -n '__nacre_is nacre top projects' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre top projects' -l count -r -f
complete -c nacre -n '__nacre_is nacre top projects' -l by -r -f -a 'space files'
complete -c nacre -n '__nacre_is nacre top projects' -l json
complete -c nacre -n '__nacre_is nacre top dirs' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre top dirs' -l count -r -f
complete -c nacre -n '__nacre_is nacre top dirs' -l by -r -f -a 'space files'
complete -c nacre -n '__nacre_is nacre top dirs' -l depth -r -f
complete -c nacre -n '__nacre_is nacre top dirs' -l json
complete -c nacre -n '__nacre_is nacre metrics' -f
complete -c nacre -n '__nacre_is nacre metrics' -l target -r -f
complete -c nacre -n '__nacre_is nacre metrics' -l text
complete -c nacre -n '__nacre_is nacre metrics' -l json
complete -c nacre -n '__nacre_is nacre dashboard' -f -a 'token'
complete -c nacre -n '__nacre_is nacre dashboard' -l listen -r -f
complete -c nacre -n '__nacre_is nacre dashboard' -l interval -r -f
complete -c nacre -n '__nacre_is nacre dashboard' -l state -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre dashboard token' -f -a 'add list remove'
complete -c nacre -n '__nacre_is nacre dashboard token add' -f
complete -c nacre -n '__nacre_is nacre dashboard token add' -l role -r -f -a 'viewer operator'
complete -c nacre -n '__nacre_is nacre dashboard token add' -l state -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre dashboard token add' -l json
complete -c nacre -n '__nacre_is nacre dashboard token list' -f
complete -c nacre -n '__nacre_is nacre dashboard token list' -l state -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre dashboard token list' -l json
complete -c nacre -n '__nacre_is nacre dashboard token remove' -f -a '(nacre dashboard token list 2>/dev/null | cut -d'\'' '\'' -f1)'
complete -c nacre -n '__nacre_is nacre dashboard token remove' -l state -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre events' -f
complete -c nacre -n '__nacre_is nacre events' -l class -r -f -a 'disk checksum network recovery eviction full failover hang config check'
complete -c nacre -n '__nacre_is nacre events' -l level -r -f -a 'error warning info'
complete -c nacre -n '__nacre_is nacre events' -l about -r -f
complete -c nacre -n '__nacre_is nacre events' -l since -r -f
complete -c nacre -n '__nacre_is nacre events' -l number -r -f
complete -c nacre -n '__nacre_is nacre events' -l follow
complete -c nacre -n '__nacre_is nacre events' -l summary
complete -c nacre -n '__nacre_is nacre events' -l explain
complete -c nacre -n '__nacre_is nacre events' -l json
complete -c nacre -n '__nacre_is nacre tune' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre tune' -l check
complete -c nacre -n '__nacre_is nacre tune' -l apply
complete -c nacre -n '__nacre_is nacre tune' -l undo
complete -c nacre -n '__nacre_is nacre tune' -l profile -r -f -a 'throughput iops wan login-node small'
complete -c nacre -n '__nacre_is nacre tune' -l only -r -f
complete -c nacre -n '__nacre_is nacre tune' -l no-flush
complete -c nacre -n '__nacre_is nacre tune' -l state -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre tune' -l json
complete -c nacre -n '__nacre_is nacre trace' -f
complete -c nacre -n '__nacre_is nacre trace' -l types -r -f
complete -c nacre -n '__nacre_is nacre trace' -l seconds -r -f
complete -c nacre -n '__nacre_is nacre trace' -l output -r -F
complete -c nacre -n '__nacre_is nacre trace' -l json
complete -c nacre -n '__nacre_is nacre trace' -l otlp
complete -c nacre -n '__nacre_is nacre trace' -l url -r -f
complete -c nacre -n '__nacre_is nacre bench' -f -a 'ior iozone mdtest io500'
complete -c nacre -n '__nacre_is nacre bench ior' -F
complete -c nacre -n '__nacre_is nacre bench iozone' -F
complete -c nacre -n '__nacre_is nacre bench mdtest' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre bench io500' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre survey' -f -a 'all sgpdd obdfilter ost mds'
complete -c nacre -n '__nacre_is nacre survey all' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre survey all' -l json
complete -c nacre -n '__nacre_is nacre survey all' -l plot -r -F
complete -c nacre -n '__nacre_is nacre survey all' -l quiet
complete -c nacre -n '__nacre_is nacre survey sgpdd' -F
complete -c nacre -n '__nacre_is nacre survey sgpdd' -l json
complete -c nacre -n '__nacre_is nacre survey sgpdd' -l plot -r -F
complete -c nacre -n '__nacre_is nacre survey sgpdd' -l quiet
complete -c nacre -n '__nacre_is nacre survey sgpdd' -l destroy
complete -c nacre -n '__nacre_is nacre survey obdfilter' -f
complete -c nacre -n '__nacre_is nacre survey obdfilter' -l json
complete -c nacre -n '__nacre_is nacre survey obdfilter' -l plot -r -F
complete -c nacre -n '__nacre_is nacre survey obdfilter' -l quiet
complete -c nacre -n '__nacre_is nacre survey ost' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre survey ost' -l json
complete -c nacre -n '__nacre_is nacre survey ost' -l plot -r -F
complete -c nacre -n '__nacre_is nacre survey ost' -l quiet
complete -c nacre -n '__nacre_is nacre survey mds' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre survey mds' -l json
complete -c nacre -n '__nacre_is nacre survey mds' -l plot -r -F
complete -c nacre -n '__nacre_is nacre survey mds' -l quiet
complete -c nacre -n '__nacre_is nacre lst' -f -a 'serve new_session end_session show_session add_group update_group list_group del_group add_batch list_batch del_batch add_test run stop query stat ping show_error'
complete -c nacre -n '__nacre_is nacre lst serve' -f
complete -c nacre -n '__nacre_is nacre lst new_session' -f
complete -c nacre -n '__nacre_is nacre lst end_session' -f
complete -c nacre -n '__nacre_is nacre lst show_session' -f
complete -c nacre -n '__nacre_is nacre lst add_group' -f
complete -c nacre -n '__nacre_is nacre lst update_group' -f
complete -c nacre -n '__nacre_is nacre lst list_group' -f
complete -c nacre -n '__nacre_is nacre lst del_group' -f
complete -c nacre -n '__nacre_is nacre lst add_batch' -f
complete -c nacre -n '__nacre_is nacre lst list_batch' -f
complete -c nacre -n '__nacre_is nacre lst del_batch' -f
complete -c nacre -n '__nacre_is nacre lst add_test' -f
complete -c nacre -n '__nacre_is nacre lst run' -f
complete -c nacre -n '__nacre_is nacre lst stop' -f
complete -c nacre -n '__nacre_is nacre lst query' -f
complete -c nacre -n '__nacre_is nacre lst stat' -f
complete -c nacre -n '__nacre_is nacre lst ping' -f
complete -c nacre -n '__nacre_is nacre lst show_error' -f
complete -c nacre -n '__nacre_is nacre history' -f -a '(nacre history --json 2>/dev/null | sed -n '\''s/.*"target":"\([^"]*\)".*/\1/p'\'' | sort -u)'
complete -c nacre -n '__nacre_is nacre history' -l since -r -f
complete -c nacre -n '__nacre_is nacre history' -l daily
complete -c nacre -n '__nacre_is nacre history' -l jumps
complete -c nacre -n '__nacre_is nacre history' -l json
complete -c nacre -n '__nacre_is nacre doctor' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre doctor' -l json
complete -c nacre -n '__nacre_is nacre doctor' -l quiet
complete -c nacre -n '__nacre_is nacre doctor' -l list
complete -c nacre -n '__nacre_is nacre maintenance' -f -a 'on off status'
complete -c nacre -n '__nacre_is nacre maintenance on' -f
complete -c nacre -n '__nacre_is nacre maintenance on' -l reason -r -f
complete -c nacre -n '__nacre_is nacre maintenance on' -l read-only
complete -c nacre -n '__nacre_is nacre maintenance on' -l closed
complete -c nacre -n '__nacre_is nacre maintenance on' -l except -r -f
complete -c nacre -n '__nacre_is nacre maintenance on' -l fsname -r -f
complete -c nacre -n '__nacre_is nacre maintenance off' -f
complete -c nacre -n '__nacre_is nacre maintenance off' -l fsname -r -f
complete -c nacre -n '__nacre_is nacre maintenance status' -f
complete -c nacre -n '__nacre_is nacre maintenance status' -l json
complete -c nacre -n '__nacre_is nacre domains' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre domains' -l json
complete -c nacre -n '__nacre_is nacre quota' -f -a 'verify'
complete -c nacre -n '__nacre_is nacre quota verify' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre quota verify' -l json
complete -c nacre -n '__nacre_is nacre report' -f -a 'striping owners sizes ages'
complete -c nacre -n '__nacre_is nacre report striping' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre report striping' -l threads -r -f
complete -c nacre -n '__nacre_is nacre report striping' -l index
complete -c nacre -n '__nacre_is nacre report striping' -l no-index
complete -c nacre -n '__nacre_is nacre report striping' -l json
complete -c nacre -n '__nacre_is nacre report owners' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre report owners' -l threads -r -f
complete -c nacre -n '__nacre_is nacre report owners' -l index
complete -c nacre -n '__nacre_is nacre report owners' -l no-index
complete -c nacre -n '__nacre_is nacre report owners' -l json
complete -c nacre -n '__nacre_is nacre report sizes' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre report sizes' -l threads -r -f
complete -c nacre -n '__nacre_is nacre report sizes' -l index
complete -c nacre -n '__nacre_is nacre report sizes' -l no-index
complete -c nacre -n '__nacre_is nacre report sizes' -l json
complete -c nacre -n '__nacre_is nacre report ages' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre report ages' -l threads -r -f
complete -c nacre -n '__nacre_is nacre report ages' -l index
complete -c nacre -n '__nacre_is nacre report ages' -l no-index
complete -c nacre -n '__nacre_is nacre report ages' -l json
complete -c nacre -n '__nacre_is nacre ha' -f -a 'plan diff inventory where takeover giveback controller define undefine status start stop monitor'
complete -c nacre -n '__nacre_is nacre ha plan' -F
complete -c nacre -n '__nacre_is nacre ha plan' -l cib -r -F
complete -c nacre -n '__nacre_is nacre ha plan' -l ordered
complete -c nacre -n '__nacre_is nacre ha plan' -l json
complete -c nacre -n '__nacre_is nacre ha diff' -f -a '(__fish_print_hostnames)'
complete -c nacre -n '__nacre_is nacre ha diff' -l plan -r -F
complete -c nacre -n '__nacre_is nacre ha diff' -l etcd -r -f
complete -c nacre -n '__nacre_is nacre ha diff' -l remote -r -f
complete -c nacre -n '__nacre_is nacre ha diff' -l json
complete -c nacre -n '__nacre_is nacre ha inventory' -f
complete -c nacre -n '__nacre_is nacre ha inventory' -l plan -r -F
complete -c nacre -n '__nacre_is nacre ha inventory' -l json
complete -c nacre -n '__nacre_is nacre ha where' -f
complete -c nacre -n '__nacre_is nacre ha where' -l wait -r -f
complete -c nacre -n '__nacre_is nacre ha where' -l json
complete -c nacre -n '__nacre_is nacre ha takeover' -f -a 'all foreign local failback'
complete -c nacre -n '__nacre_is nacre ha takeover' -l etcd -r -f
complete -c nacre -n '__nacre_is nacre ha takeover' -l to -r -f -a '(__fish_print_hostnames)'
complete -c nacre -n '__nacre_is nacre ha giveback' -f -a 'all foreign local failback'
complete -c nacre -n '__nacre_is nacre ha giveback' -l etcd -r -f
complete -c nacre -n '__nacre_is nacre ha giveback' -l from -r -f -a '(__fish_print_hostnames)'
complete -c nacre -n '__nacre_is nacre ha controller' -f
complete -c nacre -n '__nacre_is nacre ha controller' -l etcd -r -f
complete -c nacre -n '__nacre_is nacre ha controller' -l host -r -f
complete -c nacre -n '__nacre_is nacre ha controller' -l term -r -f
complete -c nacre -n '__nacre_is nacre ha controller' -l fence -r -F
complete -c nacre -n '__nacre_is nacre ha controller' -l folder-patience -r -f
complete -c nacre -n '__nacre_is nacre ha controller' -l log-dir -r -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre ha define' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre ha define' -l etcd -r -f
complete -c nacre -n '__nacre_is nacre ha define' -l on -r -f
complete -c nacre -n '__nacre_is nacre ha define' -l port -r -f
complete -c nacre -n '__nacre_is nacre ha define' -l options -r -f
complete -c nacre -n '__nacre_is nacre ha undefine' -f
complete -c nacre -n '__nacre_is nacre ha undefine' -l etcd -r -f
complete -c nacre -n '__nacre_is nacre ha status' -f
complete -c nacre -n '__nacre_is nacre ha status' -l etcd -r -f
complete -c nacre -n '__nacre_is nacre ha status' -l wait -r -f
complete -c nacre -n '__nacre_is nacre ha status' -l json
complete -c nacre -n '__nacre_is nacre ha start' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre ha start' -l nid -r -f
complete -c nacre -n '__nacre_is nacre ha start' -l port -r -f
complete -c nacre -n '__nacre_is nacre ha start' -l patience -r -f
complete -c nacre -n '__nacre_is nacre ha start' -l folder-patience -r -f
complete -c nacre -n '__nacre_is nacre ha start' -l options -r -f
complete -c nacre -n '__nacre_is nacre ha start' -l log -r -F
complete -c nacre -n '__nacre_is nacre ha stop' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre ha stop' -l patience -r -f
complete -c nacre -n '__nacre_is nacre ha monitor' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre ha monitor' -l depth -r -f
complete -c nacre -n '__nacre_is nacre ha monitor' -l json
complete -c nacre -n '__nacre_is nacre mgt' -f -a 'import export'
complete -c nacre -n '__nacre_is nacre mgt import' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre mgt import' -l replace
complete -c nacre -n '__nacre_is nacre mgt export' -f -a '(__fish_complete_directories)'
complete -c nacre -n '__nacre_is nacre mgt export' -l replace
complete -c nacre -n '__nacre_is nacre param' -f -a 'help list'
complete -c nacre -n '__nacre_is nacre param help' -f -a '(nacre param list 2>/dev/null)'
complete -c nacre -n '__nacre_is nacre param help' -l json
complete -c nacre -n '__nacre_is nacre param list' -f
complete -c nacre -n '__nacre_is nacre param list' -l json
complete -c nacre -n '__nacre_is nacre install-links' -f -a '(__fish_complete_directories)'
complete -c lctl -n '__nacre_is lctl' -f -a '(lctl --list-commands 2>/dev/null)'
complete -c lctl -n '__nacre_is lctl lfsck_start' -f
complete -c lctl -n '__nacre_is lctl lfsck_start' -l device -r -f
complete -c lctl -n '__nacre_is lctl lfsck_start' -l all
complete -c lctl -n '__nacre_is lctl lfsck_start' -l type -r -f -a 'all namespace layout'
complete -c lctl -n '__nacre_is lctl lfsck_start' -l dryrun
complete -c lctl -n '__nacre_is lctl lfsck_start' -l reset
complete -c lctl -n '__nacre_is lctl lfsck_start' -l orphan
complete -c lctl -n '__nacre_is lctl lfsck_start' -l create-ostobj
complete -c lctl -n '__nacre_is lctl lfsck_start' -l create-mdtobj
complete -c lctl -n '__nacre_is lctl lfsck_start' -l error -r -f -a 'continue abort'
complete -c lctl -n '__nacre_is lctl lfsck_start' -l speed -r -f
complete -c lctl -n '__nacre_is lctl lfsck_stop' -f
complete -c lctl -n '__nacre_is lctl lfsck_stop' -l device -r -f
complete -c lctl -n '__nacre_is lctl lfsck_stop' -l all
complete -c lctl -n '__nacre_is lctl lfsck_query' -f
complete -c lctl -n '__nacre_is lctl lfsck_query' -l device -r -f
complete -c lctl -n '__nacre_is lctl lfsck_query' -l all
complete -c lctl -n '__nacre_is lctl lfsck_query' -l type -r -f -a 'all namespace layout'
complete -c lctl -n '__nacre_is lctl lfsck_query' -l wait
complete -c lctl -n '__nacre_is lctl lfsck_query' -l json
complete -c lctl -n '__nacre_is lctl barrier_stat' -f
complete -c lctl -n '__nacre_is lctl barrier_stat' -l state
complete -c lctl -n '__nacre_is lctl barrier_stat' -l timeout
complete -c lctl -n '__nacre_is lctl barrier_stat' -l json
complete -c lctl -n '__nacre_is lctl debug_list' -f -a 'types subs'
complete -c lctl -n '__nacre_is lctl debug_list' -l json
complete -c lctl -n '__nacre_is lctl dk' -F
complete -c lctl -n '__nacre_is lctl dk' -l keep
complete -c lctl -n '__nacre_is lctl dk' -l json
complete -c lctl -n '__nacre_is lctl debug_kernel' -F
complete -c lctl -n '__nacre_is lctl debug_kernel' -l keep
complete -c lctl -n '__nacre_is lctl debug_kernel' -l json
complete -c lfs -n '__nacre_is lfs' -f -a '(lfs --list-commands 2>/dev/null)'
